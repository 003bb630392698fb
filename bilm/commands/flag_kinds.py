"""Kinds of flags that several commands have: names of files, how to read text."""

from __future__ import annotations

import os

from absl import flags

from bilm.data.shards import ON_BAD_UTF8
from bilm.errors import DataError

flags.disclaim_key_flags()  # --help lists a flag with those of the module that asked for it


class _Path(flags.ArgumentParser):
    """The name of a file or folder, or a pattern of such names; a leading ~ is the home folder."""

    def parse(self, argument: str) -> str:
        if not argument:
            raise ValueError("found nothing, expected a name")
        if argument.startswith("-") and argument != "-":
            raise ValueError(f"found a flag, expected a name; ./{argument} is a name with a dash")
        path = os.path.expanduser(argument)
        if path.startswith("~") and not os.path.lexists(path):
            raise ValueError(f"no home folder is known for {path.partition('/')[0]}")
        return path


def define_path(name: str, default: str | None, help: str) -> None:
    """Define a flag that names a file or folder. An empty name or one with a dash is refused."""
    flags.DEFINE(_Path(), name, default, help, serializer=flags.ArgumentSerializer())


def define_on_bad_utf8() -> None:
    """Define --on_bad_utf8."""
    flags.DEFINE_enum(
        "on_bad_utf8", "error", ON_BAD_UTF8,
        "What text that is not UTF-8 ends in: an error, or U+FFFD in place of the bytes.",
    )  # fmt: skip


def text_of(flag: str) -> str:
    """Return the text that a flag gives, which is UTF-8 whatever the locale says.

    Raises: DataError, naming the flag, if it is not.
    """
    try:
        return os.fsencode(flags.FLAGS[flag].value).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"--{flag}: not UTF-8 ({error.reason})") from error
