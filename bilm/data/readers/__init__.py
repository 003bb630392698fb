"""Readers of input files: text here, every other form in a module with a `FORM` that declares it.

To add a form, write a module with a `FORM` and add it to `FORMS`. Help, error messages and the
arguments of `Corpus` follow from the declaration. Imports `data.text`, `data.tokenization`,
`errors` and `support`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bilm.data.readers import conllu, fasta, tables
from bilm.data.readers.form import Form, InputFile, Record, Split
from bilm.data.signs import TextSigns
from bilm.data.text import ON_BAD_UTF8, input_files, read_lines, unpacked_name
from bilm.data.tokenization import keep_whole, sentence_splitter, tokenizer
from bilm.errors import DataError, OptionsError
from bilm.support.progress import Progress

MAX_SHARES = 100_000


def read_text(source: InputFile) -> Iterator[Record]:
    """Yield a record per line, also for an empty one; or the sentences of each paragraph."""
    lines = (source.watch(line) for _, line in read_lines(source.path, source.errors))
    return map(Record, source.split(lines))


TEXT = Form(
    name="text",
    endings=(),
    help="text, one sentence per line, words separated by blanks; --tokenize splits other text",
    read=read_text,
    options=frozenset({"tokenize"}),
)
FORMS = (tables.FORM, conllu.FORM, fasta.FORM, TEXT)


def form_of(path: str | os.PathLike) -> Form:
    """Return the form of a file by the ending of its name, before the ending of a compression."""
    ending = Path(unpacked_name(path)).suffix
    return next((form for form in FORMS if ending in form.endings), TEXT)


def help_lines() -> list[str]:
    """Return two lines of `--help` per form: its endings, and its description, indented."""
    lines = []
    for form in FORMS:
        lines += [" ".join(form.endings) or "other", f"    {form.help}"]
    return lines


class Corpus:
    """The records of a file; the ending of its name determines its form. Iterable repeatedly.

    Args:
        path: the file or its URL, plain or compressed.
        column: column of a table with the text; required for tables.
        id_column: column of a table with the ids, which are strings or integers.
        id_field: position of the id in a FASTA header split at `|` and blanks, from 0; None for
            the header's first word.
        tokenize: language whose spaCy rules split text into words; None splits at whitespace.
        on_bad_utf8: "error", or "replace" to decode invalid UTF-8 as U+FFFD.
        split_sentences, paragraph_per_line: also split text into sentences: `sentence_splitter`.
        signs: counter of signs in the first iteration, shared by the files of a text.
        marks: pattern of marks in texts that are not split.
        keep: columns of a table that the records repeat as text.
        surface: read the surface forms of CoNLL-U's multiword tokens instead of their words.
        quoting: "csv" or "none", of CSV and TSV; None for "csv" without fields that may be rows.
    Attributes: `path`; `form`; `has_ids`, whether records have ids.
    Raises: DataError if an argument is missing or does not apply to the form; BilmError if a
        package is missing. Iterating raises DataError that names file and line or row.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        column: str | None = None,
        id_column: str | None = None,
        id_field: int | None = None,
        tokenize: str | None = None,
        on_bad_utf8: str = "error",
        split_sentences: bool = False,
        paragraph_per_line: bool = False,
        signs: TextSigns | None = None,
        marks: re.Pattern[str] | None = None,
        keep: Sequence[str] | None = None,
        surface: bool = False,
        quoting: str | None = None,
    ):
        self.path = os.path.expanduser(os.fspath(path))
        self.form = form_of(self.path)
        self.has_ids = self.form.has_ids or id_column is not None
        options: dict[str, object] = {
            "column": column, "id_column": id_column, "id_field": id_field, "tokenize": tokenize,
            "keep": keep, "surface": surface or None, "quoting": quoting,
        }  # fmt: skip
        for name, value in options.items():
            if value is None and name in self.form.required:
                raise DataError(
                    f"{self.path}: --{name} is missing; it is required for {self.form.name}"
                )
            if value is not None and name not in self.form.options:
                forms = " and ".join(form.name for form in FORMS if name in form.options)
                raise DataError(
                    f"{self.path}: --{name} does not apply to {self.form.name}, only to {forms}"
                )

        # How to split texts into sentences, and sentences into words.
        split: Split
        if not split_sentences:
            words_of = tokenizer(tokenize)
            split = partial(map, keep_whole(words_of, marks) if marks else words_of)
        elif tokenize is None or self.has_ids:
            problem = "ids would not be unique" if self.has_ids else "--tokenize is missing"
            raise DataError(f"{self.path}: --split_sentences cannot be used: {problem}")
        else:
            split = sentence_splitter(tokenize, paragraph_per_line)
        # Only natural language is examined, and its words only in the first iteration.
        signs = signs or TextSigns(path)
        self._signs = signs if self.form.is_text else None
        self._source = InputFile(
            self.path, ON_BAD_UTF8[on_bad_utf8], split, column, id_column, id_field, keep or (),
            surface, quoting, signs.add_line,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Record]:
        records = self.form.read(self._source)
        if self._signs is None:
            return records
        signs = self._signs
        self._signs = None
        return signs.watch(records, itemgetter(0))  # the words of a record


class Share(NamedTuple):
    """One of `n` shares of a corpus of nearly equal size, in order: its `number`, from 0."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that "number/n" describes, such as "0/4". Raises: OptionsError."""
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not int(match[1]) < int(match[2]) <= MAX_SHARES:
            raise OptionsError(
                f"--shard {text}: expected i/n with the number i of the share, from 0 to n - 1, "
                "and the number n of shares, such as 0/4"
            )
        return cls(int(match[1]), int(match[2]))

    def file_name(self, output: str) -> str:
        """Return the name of this share's output: vectors-00000-of-00004.npz for vectors.npz."""
        ending = PurePosixPath(output).suffix
        return f"{output.removesuffix(ending)}-{self.number:05}-of-{self.n:05}{ending}"


class Corpora:
    """The records of all files that a pattern matches, in order, or a share of them; see `Corpus`.

    Attributes: `path`, the name of the whole, for messages; `has_ids`.
    Raises: DataError as `input_files` and `Corpus` do, and if only some files have ids.
    """

    def __init__(self, pattern: str | os.PathLike, share: Share | None = None, **reading: Any):
        reading.setdefault("signs", TextSigns(pattern))
        self._corpora = [Corpus(path, **reading) for path in input_files(pattern)]
        self.path = os.fspath(pattern) if len(self._corpora) > 1 else self._corpora[0].path
        self.has_ids = any(corpus.has_ids for corpus in self._corpora)
        for corpus in self._corpora:
            if corpus.has_ids != self.has_ids:
                raise DataError(
                    f"{corpus.path}: its sentences have no ids, but other files of {self.path} "
                    "have ids; expected files of the same form"
                )

        # A share is a range of the records, which are counted first.
        self._first = 0
        self._end: int | None = None
        if share is not None:
            counted = Progress("counting", "sentences")
            n_records = sum(1 for _ in counted.over(self))
            self._first = n_records * share.number // share.n
            self._end = n_records * (share.number + 1) // share.n
            self.path += f" (share {share.number} of {share.n})"

    def __iter__(self) -> Iterator[Record]:
        return islice(chain.from_iterable(self._corpora), self._first, self._end)
