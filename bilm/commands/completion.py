"""Completion of commands, flags and their values in the user's shell, by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bilm.commands import values
from bilm.commands.flags import Flags
from bilm.extras import needed

if TYPE_CHECKING:  # which imports more than a completion needs
    from bilm.commands.command import Command

with needed("completion", "--print-completion"):
    import shtab


def shells() -> list[str]:
    """Return the shells for which there is a script."""
    return list(shtab.SUPPORTED_SHELLS)


def script(commands: Mapping[str, Command], shell: str) -> str:
    """Return the completion script of a shell for commands by name."""
    parser = argparse.ArgumentParser("bilm", add_help=False)
    for name in ("--help", "--version", "--print-completion"):
        parser.add_argument(name, action="store_true")
    subparsers = parser.add_subparsers()
    for name, command in commands.items():
        flags = Flags(f"bilm {name}", command.__doc__ or "")
        command.define_flags(flags)
        _declare(flags, subparsers.add_parser(name, help=flags.summary, add_help=False))
    return shtab.complete(parser, shell)


def _declare(flags: Flags, parser: argparse.ArgumentParser) -> None:
    """Declare the flags that the help shows once more, as shtab reads them."""
    parser.add_argument("--help", action="store_true", help="show the flags")
    for flag in flags.declared:
        if not flag.option_strings:
            action = parser.add_argument(flag.dest, help=flag.help)
        else:
            names = flag.option_strings[: 2 if "[no_]" in flag.shown else 1]
            kind = (
                {"action": "store_true"}
                if flag.nargs == 0
                else {"choices": list(flag.words) or None}
            )
            action = parser.add_argument(*names, help=flag.help, **kind)
        if getattr(flag, "convert", None) is values.path:  # a switch converts nothing
            action.complete = shtab.FILE  # type: ignore[attr-defined]
