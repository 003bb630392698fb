"""The flags of a command: what they are called, what values they take, and what is wrong use.

argparse parses and lays out the help. Each flag is declared once. Its name in `bilm COMMAND` and
the names that it had in the scripts of `bin/` all work everywhere; the help shows those of the
program that was started.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from bilm.commands import values

BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
ALWAYS = """
-h and --help show this, --version the version. --quiet logs warnings and errors only.
--flagfile=FILE reads flags from a file, one per line.
"""


class WrongUse(Exception):
    """A command line that cannot be used; the message says why in one line."""


class Flags:
    """The flags of one command, declared one after the other in groups.

    Every `name` is that in `bilm COMMAND`, without dashes, and becomes an attribute of what `parse`
    returns. Further arguments of the methods that declare a flag are `default`, shown in the help;
    `required`; `old`, the names in the scripts of `bin/`; `metavar`, what stands for the value.

    Args:
        program: the name of the command, such as `bilm train`.
        text: its help: a summary, and after a blank line what comes after the flags.
        old_names: whether the help and the errors show the old names.
    """

    def __init__(self, program: str, text: str, old_names: bool = False):
        summary, _, rest = text.strip().partition("\n\n")
        self.program, self.summary, self._old_names = program, summary, old_names
        self._parser = argparse.ArgumentParser(
            prog=program,
            description=summary,
            epilog=f"{rest.rstrip()}\n{ALWAYS}".lstrip(),
            formatter_class=_Layout,
            add_help=False,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self._group: Any = self._parser
        self._named: dict[str, _Value] = {}
        self.declared: list[_Value] = []
        self._bare: str | None = None  # what is a flag in other commands and a word here
        self._parser.add_argument(
            "-h", "--help", "--helpfull", action="store_true", help=argparse.SUPPRESS
        )
        for name in ("--version", "--quiet"):
            self._parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)

    # --- declaring ---

    def group(self, title: str) -> None:
        """Start a group: the help shows the flags that follow under a title."""
        self._group = self._parser.add_argument_group(title)

    def path(self, name: str, help: str, metavar: str = "FILE", **how: Any) -> None:
        """Declare the name of a file or folder, or a pattern; a leading ~ is the home folder."""
        self._add(name, help, values.path, metavar=metavar, **how)

    def text(self, name: str, help: str, metavar: str = "TEXT", **how: Any) -> None:
        """Declare a text, which is UTF-8 whatever the locale says; with `many` a list of them."""
        self._add(name, help, values.text, metavar=metavar, **how)

    def names(self, name: str, help: str, metavar: str = "A,B", **how: Any) -> None:
        """Declare a list of words with commas between them."""
        self._add(name, help, values.names, metavar=metavar, **how)

    def integer(
        self, name: str, help: str, low: int | None = None, high: int | None = None, **how: Any
    ) -> None:
        """Declare an integer from `low` to `high`."""
        self._add(name, help, values.number(int, low, high), metavar="N", **how)

    def number(
        self, name: str, help: str, low: float | None = None, high: float | None = None, **how: Any
    ) -> None:
        """Declare a finite number from `low` to `high`."""
        self._add(name, help, values.number(float, low, high), metavar="X", **how)

    def choice(self, name: str, help: str, choices: Sequence[str], **how: Any) -> None:
        """Declare a flag that takes one of a few words."""
        self._add(name, help, values.one_of(choices), metavar="|".join(choices), **how)
        self.declared[-1].words = choices

    def switch(self, name: str, help: str, default: bool | None = False) -> None:
        """Declare a flag without a value: --name and --no_name; None says which was not given."""
        action = self._group.add_argument(
            f"--{name}",
            f"--no_{name}",
            f"--no{name}",
            action=_Value,
            nargs=0,
            default=default,
            help=help.replace("%", "%%") + (" [yes]" if default else ""),
        )
        action.shown = f"--[no_]{name}" if default is not False else f"--{name}"
        self._declared(action)

    def positional(self, name: str, help: str) -> None:
        """Declare a file or folder that must be given, with --name before it or not."""
        self._bare = f"--{name}"
        action = self._group.add_argument(name, action=_Value, help=help)
        action.convert, action.shown, action.needed = values.path, name.upper(), True
        action.required = False  # argparse would check it before anything else
        self._declared(action)

    def _add(
        self,
        name: str,
        help: str,
        convert: Callable[[str], Any],
        *,
        metavar: str,
        default: Any = None,
        required: bool = False,
        old: Sequence[str] = (),
        many: bool = False,
    ) -> None:
        ending = " (required)" if required else ""
        if default is not None and not many:
            ending = f" [{','.join(default) if isinstance(default, list) else default}]"
        names = [f"--{n}" for n in (name, *old)]
        action = self._group.add_argument(
            *names, action=_Value, default=default, dest=name, help=help.replace("%", "%%") + ending
        )
        shown = names[1:] if old and self._old_names else names[:1]
        action.convert, action.needed, action.many = convert, required, many
        action.shown, action.metavar = " or ".join(shown), metavar
        self._declared(action)

    def _declared(self, action: _Value) -> None:
        self.declared.append(action)
        self._named |= dict.fromkeys(action.option_strings, action)
        needed = (f"{a.shown} {a.metavar or ''}".strip() for a in self.declared if a.needed)
        self._parser.usage = " ".join(["%(prog)s", *needed, "[flags]"])

    # --- reading a command line ---

    def help(self) -> str:
        """Return the help."""
        return self._parser.format_help()

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the value of each flag.

        Returns: an attribute for each flag, and `help`, `version` and `quiet`; if one of the first
            two is set the others have not been checked.
        Raises: WrongUse; OSError if a file of flags cannot be read.
        """
        given, words = list(words), _with_flag_files(words)
        try:
            for action in self.declared:
                action.times = 0
            spelled = [word for word in map(self._spelled, words) if word is not None]
            args, left = self._parser.parse_known_args(spelled)
        except argparse.ArgumentError as error:
            raise WrongUse(self._reworded(error)) from None
        if not (args.help or args.version):
            # What follows a file of flags may change what it says.
            self._check(left, again=given != words)
        return args

    def _check(self, left: Sequence[str], again: bool) -> None:
        """Refuse what belongs to no flag, what is given twice, and what is missing."""
        if unknown := next((word for word in left if FLAG.fullmatch(word)), None):
            name = unknown.partition("=")[0]
            near = difflib.get_close_matches(name, self._named, 1)
            raise WrongUse(f"unknown flag {name}" + (f"; did you mean {near[0]}?" if near else ""))
        twice = [a.shown for a in self.declared if a.times > 1 and not (a.many or again)]
        if twice:
            raise WrongUse(f"{min(twice)} is given twice")
        if left:
            raise WrongUse(_stray(left))
        missing = [action.shown for action in self.declared if action.needed and not action.times]
        if missing:
            raise WrongUse(f"{', '.join(missing)} must be given")

    def _spelled(self, word: str) -> str | None:
        """Return a word as argparse knows it: -x is --x, --a-b is --a_b, --x=false is --no_x.

        Of the flag that may precede the word without one only the value is left, if it has one.
        """
        found = FLAG.fullmatch(word)
        name = f"--{found[1].replace('-', '_')}" if found else ""
        if found and name == self._bare:
            return found[2]
        if not found or name not in self._named:
            return word
        action, value = self._named[name], found[2]
        if value is None:
            return name
        if action.nargs != 0:
            return f"{name}={value}"
        if value.lower() not in BOOLEANS:
            raise WrongUse(f"{name}={value}: expected true or false")
        return action.option_strings[0 if BOOLEANS[value.lower()] else 1]

    def _reworded(self, error: argparse.ArgumentError) -> str:
        action = self._named.get((error.argument_name or "").split("/")[0])
        if action is None:
            return str(error)
        message = error.message.replace("expected one argument", "expected a value")
        return f"{action.shown}: {message}"


class _Value(argparse.Action):
    """Keeps the converted value of a flag, and counts how often the flag was given."""

    convert: Callable[[str], Any]
    shown = ""  # its name in the help and in errors
    words: Sequence[str] = ()  # the only ones that it takes, if there are only some
    needed = many = False
    times = 0

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        given: Any,
        option_string: str | None = None,
    ) -> None:
        self.times += 1
        if self.nargs == 0:
            setattr(namespace, self.dest, option_string == self.option_strings[0])
            return
        try:
            value = self.convert(given)
        except ValueError as error:
            name = f"{option_string}={given}" if option_string else f"{self.shown} {given}"
            raise WrongUse(f"{name}: {error}") from None
        if self.many:
            value = [*(getattr(namespace, self.dest) if self.times > 1 else []), value]
        setattr(namespace, self.dest, value)


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Help with one name and value per flag, and the text after the flags as it is."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=26)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = getattr(action, "shown", "")
        return f"{shown} {action.metavar or ''}".strip() if action.option_strings else shown


def _with_flag_files(words: Sequence[str]) -> list[str]:
    """Return the words with those of files of flags in their place."""
    if not any(word.lstrip("-").startswith("flagfile") for word in words):
        return list(words)
    from absl import flags  # takes longer to import than the rest of this module

    try:
        return flags.FlagValues().read_flags_from_files(words)
    except flags.Error as error:
        raise WrongUse(str(error)) from None
    except UnicodeDecodeError as error:
        named = " ".join(word for word in words if "flagfile" in word)
        raise WrongUse(f"{named}: the file of flags is not UTF-8 ({error})") from None


def _stray(words: Sequence[str]) -> str:
    """Say what may be wrong about words that belong to no flag."""
    more = f" and {len(words) - 1} more" if len(words) > 1 else ""
    found = f"unexpected argument {words[0]!r}{more}"
    if not all(map(os.path.exists, words)):
        return f"{found}; every value needs its --flag"
    folder, ending = os.path.dirname(words[0]), os.path.splitext(words[0])[1]
    pattern = os.path.join(folder, f"*{ending}")
    return f"{found}; put a pattern of files in quotes, such as '{pattern}'"
