"""How files are read, and the declaration of an input form, which every reader module contains."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from bilm.data.tokenization import keep_whole, sentence_splitter, tokenizer
from bilm.errors import DataError

MAX_ID = 1000  # characters
TOKENIZE = {"tokenize": "Split text into words with spaCy's rules for a language, such as en."}
Split = Callable[[Iterable[str]], Iterator[list[str]]]


@dataclass(frozen=True)
class Reading:
    """How to read files: the values of options of all input forms or of some: `Form.options`."""

    column: str | None = None
    id_column: str | None = None  # strings or integers
    id_field: int | None = None
    keep: Sequence[str] = ()
    quoting: str | None = None  # "csv" or "none"; None: "csv" without fields that may be rows
    surface: bool = False
    tokenize: str | None = None  # None: split at whitespace
    split_sentences: bool = False  # also split text into sentences, see `sentence_splitter`
    paragraph_per_line: bool = False
    on_bad_utf8: str = "error"  # or "replace", to decode invalid UTF-8 as U+FFFD
    marks: re.Pattern[str] | None = None  # in texts, which must not be split

    @cached_property
    def split(self) -> Split:
        """Function that splits texts, or the lines of one, into sentences, and these into words."""
        if self.split_sentences and self.tokenize is not None:
            return sentence_splitter(self.tokenize, self.paragraph_per_line)
        words_of = tokenizer(self.tokenize)
        return partial(map, keep_whole(words_of, self.marks) if self.marks else words_of)


class Record(NamedTuple):
    """A sentence. Lemmas and tags, which are parts of speech, are None where a file has none."""

    words: list[str]
    id: str | None = None
    lemmas: list[str | None] | None = None
    tags: list[str | None] | None = None
    kept: Mapping[str, str] = {}  # values of other columns of a table


class InputFile(NamedTuple):
    """A file to read and how to read it."""

    path: str
    reading: Reading
    watch: Callable[[str], str] = str  # examines a line of text and returns it


class Form(NamedTuple):
    """An input form. A module of this package defines one, with the name `FORM`."""

    name: str  # for messages
    endings: tuple[str, ...]  # of file names, in lower case; empty for files with any other ending
    help: str  # one line for `--help` about what a sentence is
    read: Callable[[InputFile], Iterator[Record]]  # yields the records of a file
    options: Mapping[str, str] = {}  # fields of `Reading` that apply to the form, and their help
    has_ids: bool = False  # whether every record has an id even without `id_column`
    is_text: bool = True  # whether sentences are natural language, which may have signs


def checked_id(id_: str, where: str) -> str:
    """Return an id. Raises: DataError if it is empty, too long or contains NUL."""
    if not 0 < len(id_) <= MAX_ID or "\0" in id_:
        raise DataError(
            f"{where}: the id {id_[:40]!r} has {len(id_):,} characters, expected 1 to {MAX_ID:,} "
            "without NUL"
        )
    return id_
