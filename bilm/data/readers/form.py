"""The declaration of an input form, which every reader module contains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bilm.errors import DataError

MAX_ID = 1000  # characters
Split = Callable[[Iterable[str]], Iterator[list[str]]]


class Record(NamedTuple):
    """A sentence. Lemmas and tags, which are parts of speech, are None where a file has none."""

    words: list[str]
    id: str | None = None
    lemmas: list[str | None] | None = None
    tags: list[str | None] | None = None
    kept: Mapping[str, str] = {}  # values of other columns of a table, see `Corpus`


class InputFile(NamedTuple):
    """A file to read and how to read it: see `Corpus`."""

    path: str
    errors: str  # argument of `bytes.decode`
    split: Split  # splits texts, or the lines of one, into sentences, and each one into words
    column: str | None = None
    id_column: str | None = None
    id_field: int | None = None
    keep: Sequence[str] = ()
    surface: bool = False
    quoting: str | None = None
    watch: Callable[[str], str] = str  # examines a line of text and returns it


class Form(NamedTuple):
    """An input form. A module of this package defines one, with the name `FORM`."""

    name: str  # for messages
    endings: tuple[str, ...]  # of file names, in lower case; empty for files with any other ending
    help: str  # one line for `--help` about what a sentence is
    read: Callable[[InputFile], Iterator[Record]]  # yields the records of a file
    options: frozenset[str] = frozenset()  # `column`, `tokenize`, ...: see `Corpus`
    required: frozenset[str] = frozenset()  # options that must be given
    has_ids: bool = False  # whether every record has an id even without `id_column`
    is_text: bool = True  # whether sentences are natural language; otherwise they have no signs


def checked_id(id_: str, where: str) -> str:
    """Return an id. Raises: DataError if it is empty, too long or contains NUL."""
    if not 0 < len(id_) <= MAX_ID or "\0" in id_:
        raise DataError(
            f"{where}: the id {id_[:40]!r} has {len(id_):,} characters, expected 1 to {MAX_ID:,} "
            "without NUL"
        )
    return id_
