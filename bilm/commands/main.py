"""The program `bilm`: its subcommands, each imported when it is used."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import NoReturn

import click

import bilm
from bilm.commands import terminal

# Each module of this package defines a command of the same name, with underscores for dashes; the
# help lists them in this order.
COMMANDS = (
    "text", "vocab", "train", "test", "export", "finetune", "embed", "score", "surprisal",
    "minimal-pairs", "substitutes", "info", "cache"
)  # fmt: skip
COMPLETION = "_BILM_COMPLETE"
NOTES = """
Examples:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --min_count 3
  bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --options small
  bilm export --model run --output elmo
  bilm embed --model elmo --input corpus.txt --output corpus.hdf5

Option names may be written with dashes or underscores. To enable shell completion, add this line to
~/.bashrc (for zsh: to ~/.zshrc, with zsh_source instead of bash_source):
  eval "$(_BILM_COMPLETE=bash_source bilm)"
"""


class LazyGroup(click.Group):
    """The subcommands of `COMMANDS`; a module is imported when its command is used or listed."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        return getattr(importlib.import_module(f"bilm.commands.{name}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one if the name is unknown."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the list of commands."""
        formatter.write(NOTES)


@click.group(
    "bilm",
    cls=LazyGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(bilm.__version__, message="bilm %(version)s")
def cli() -> None:
    """Train, evaluate and use the bidirectional language model behind ELMo."""


def main() -> NoReturn:
    """Run `bilm` with the arguments of the command line, and exit."""
    terminal.start()
    if instruction := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "bilm", COMPLETION, instruction))
    from bilm.commands.program import run

    sys.exit(run(cli, "bilm", sys.argv[1:]))
