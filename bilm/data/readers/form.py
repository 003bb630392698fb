"""The declaration of an input form, which every reader module contains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from bilm.errors import DataError

MAX_ID = 1000  # characters
Split = Callable[[Iterable[str]], Iterator[list[str]]]


class Record(NamedTuple):
    """A sentence.

    Fields:
        words: its words.
        id: its id, or None.
        lemmas, tags: lemma and part of speech of each word, None where the file does not state
            them; None for forms without annotations.
    """

    words: list[str]
    id: str | None = None
    lemmas: list[str | None] | None = None
    tags: list[str | None] | None = None


class InputFile(NamedTuple):
    """A file to read and how to read it: see `Corpus`.

    Fields:
        errors: `errors` of `bytes.decode`.
        split: splits texts, or the lines of one, into sentences, and each sentence into words.
    """

    path: str
    errors: str
    split: Split
    column: str | None = None
    id_column: str | None = None
    id_field: int | None = None


class Form(NamedTuple):
    """An input form. A module of this package defines one, with the name `FORM`.

    Fields:
        name: name for messages.
        endings: endings of file names, in lower case; empty for the form that reads files with any
            other ending.
        help: one line for `--help` about what a sentence is.
        read: yields the records of a source.
        options: accepted arguments of `Corpus`: `column`, `id_column`, `id_field`, `tokenize`.
        required: options that must be given.
        has_ids: whether every record has an id even without `id_column`.
        is_text: whether sentences are natural language; if not, `data.signs` are not looked for.
    """

    name: str
    endings: tuple[str, ...]
    help: str
    read: Callable[[InputFile], Iterator[Record]]
    options: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    has_ids: bool = False
    is_text: bool = True


def checked_id(id_: str, where: str) -> str:
    """Return an id. Raises: DataError if it is empty, too long or contains NUL."""
    if not 0 < len(id_) <= MAX_ID or "\0" in id_:
        raise DataError(
            f"{where}: the id {id_[:40]!r} has {len(id_):,} characters, expected 1 to {MAX_ID:,} "
            "without NUL"
        )
    return id_
