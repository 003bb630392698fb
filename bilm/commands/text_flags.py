"""Flags of the commands that read text."""

from __future__ import annotations

from bilm.commands.flags import Flags
from bilm.data.shards import ON_BAD_UTF8


def define_on_bad_utf8(flags: Flags) -> None:
    """Declare --on_bad_utf8."""
    flags.choice(
        "on_bad_utf8",
        "What to do with text that is not UTF-8: an error, or U+FFFD in place of the bytes.",
        ON_BAD_UTF8,
        default="error",
    )


def define_corpus(flags: Flags) -> None:
    """Declare which column of a table is read, and --tokenize."""
    flags.group("sentences")
    flags.text("column", "Column of a table that holds the text.", "NAME")
    define_tokenize(flags)


def define_tokenize(flags: Flags) -> None:
    """Declare --tokenize."""
    flags.text(
        "tokenize",
        "Split text into words by spaCy's rules for a language, such as en [at blanks].",
        "LANG",
    )
