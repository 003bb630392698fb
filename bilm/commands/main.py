"""The doors of the commands: `bilm COMMAND`, and the scripts of `bin/`."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from bilm.commands import terminal

if TYPE_CHECKING:  # not imported before `terminal.start`
    from bilm.commands.command import Command

# Modules of this package that are `bilm.commands.command.Command`s.
COMMANDS = (
    "text",
    "vocab",
    "train",
    "test",
    "export",
    "finetune",
    "embed",
    "score",
    "substitutes",
    "info",
    "cache",
)
HELP = """usage: bilm COMMAND [flags]

The bidirectional language model behind ELMo: train it, measure it, and embed text with it.

commands:
{commands}

Examples:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --min_count 3
  bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --options small
  bilm export --model run --output elmo
  bilm embed --model elmo --input corpus.txt --output corpus.hdf5

bilm COMMAND --help shows the flags of a command, bilm --version the version.
eval "$(bilm --print-completion bash)" in ~/.bashrc completes commands and flags."""


def main() -> NoReturn:
    """Run `bilm` with the words of the command line, and exit."""
    terminal.start()  # before the imports that take time
    from bilm.commands import command

    name, *words = sys.argv[1:] or [""]
    if name in COMMANDS:
        sys.exit(command.run(_module(name), f"bilm {name}", words))
    if name in ("-h", "--help", "help"):
        sys.exit(command.print_text(_help()))
    if name == "--version":
        sys.exit(command.print_text(command.version("bilm")))
    if name == "--print-completion":
        sys.exit(_print_completion(words))
    near = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(COMMANDS)}"
    what = f"unknown command {name!r}" if name else "a command must be given"
    sys.exit(command.fail("bilm", f"{what}{hint}", command.WRONG_USE))


def script(name: str) -> NoReturn:
    """Run a command as a script of `bin/`, whose help and errors show the old names of its flags.

    Args:
        name: of the command.
    """
    terminal.start()
    from bilm.commands import command

    program = os.path.basename(sys.argv[0])
    sys.exit(command.run(_module(name), program, sys.argv[1:], old_names=True))


def _print_completion(words: list[str]) -> int:
    """Print the completion script of a shell and return the status to exit with."""
    from bilm.commands import command

    try:
        from bilm.commands import completion

        shells = completion.shells()
        if len(words) != 1 or words[0] not in shells:
            found = f"--print-completion {' '.join(words)}".strip()
            expected = f"expected --print-completion and one of {', '.join(shells)}"
            return command.fail("bilm", f"{found}: {expected}", command.WRONG_USE)
        modules = {name: _module(name) for name in COMMANDS}
        return command.print_text(completion.script(modules, words[0]))
    except ImportError as error:
        return command.fail("bilm", error)


def _module(name: str) -> Command:
    return importlib.import_module(f"bilm.commands.{name}")


def _help() -> str:
    summaries = ((name, (_module(name).__doc__ or "").partition("\n")[0]) for name in COMMANDS)
    return HELP.format(commands="\n".join(f"  {name:<13}{text}" for name, text in summaries))
