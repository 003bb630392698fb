"""Readers of input files: text here, every other form in a module with a `FORM` that declares it.

To add a form, write a module with a `FORM` and add its name to `MODULES`. Help, error messages and
the arguments of `Corpus` follow from the declaration. Imports `data.text`, `data.tokenization`,
`errors` and `support`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bilm.data.readers.form import Form, InputFile, Record, Split
from bilm.data.signs import TextSigns
from bilm.data.text import ON_BAD_UTF8, matching_files, read_lines, require_files, unpacked_name
from bilm.data.tokenization import sentence_splitter, tokenizer
from bilm.errors import DataError, OptionsError
from bilm.support.progress import progress

MAX_SHARES = 100_000


def read_text(source: InputFile) -> Iterator[Record]:
    """Yield a record per line, also for an empty one; or the sentences of each paragraph."""
    lines = (line for _, line in read_lines(source.path, source.errors))
    return map(Record, source.split(lines))


TEXT = Form(
    name="text",
    endings=(),
    help="text, one sentence per line, words separated by blanks; --tokenize splits other text",
    read=read_text,
    options=frozenset({"tokenize"}),
)
MODULES = ("tables", "conllu", "fasta")
FORMS: tuple[Form, ...] = (*(import_module(f"{__name__}.{m}").FORM for m in MODULES), TEXT)


def form_of(path: str | os.PathLike) -> Form:
    """Return the form of a file by the ending of its name, before the ending of a compression."""
    ending = Path(unpacked_name(path)).suffix
    return next((form for form in FORMS if ending in form.endings), TEXT)


def help_lines() -> list[str]:
    """Return two lines of `--help` per form: its endings, and its description, indented."""
    lines = []
    for form in FORMS:
        lines.append(" ".join(form.endings) or "other")
        lines.append(f"    {form.help}")
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
    ):
        self.path = os.path.expanduser(os.fspath(path))
        self.form = form_of(self.path)
        self.has_ids = self.form.has_ids or id_column is not None
        _check_options(
            self.path, self.form, column=column, id_column=id_column, id_field=id_field,
            tokenize=tokenize,
        )  # fmt: skip
        split = self._splitter(tokenize, split_sentences, paragraph_per_line)
        errors = ON_BAD_UTF8[on_bad_utf8]
        self._source = InputFile(self.path, errors, split, column, id_column, id_field)
        # Only natural language is examined, and only in the first iteration.
        self._signs = (signs or TextSigns(path)) if self.form.is_text else None

    def _splitter(
        self, tokenize: str | None, split_sentences: bool, paragraph_per_line: bool
    ) -> Split:
        """Return the function that splits texts. Raises: DataError, BilmError: see the class."""
        if not split_sentences:
            return partial(map, tokenizer(tokenize))
        if tokenize is None or self.has_ids:
            problem = "ids would not be unique" if self.has_ids else "--tokenize is missing"
            raise DataError(f"{self.path}: --split_sentences cannot be used: {problem}")
        return sentence_splitter(tokenize, paragraph_per_line)

    def __iter__(self) -> Iterator[Record]:
        records = self.form.read(self._source)
        if self._signs is None:
            return records
        signs, self._signs = self._signs, None
        return signs.watch(records, itemgetter(0))  # the words of a record


class Corpora:
    """The records of several files, one after another. Iterable repeatedly.

    Args:
        name: name of all files for messages, such as a pattern.
        corpora: the files.
        span: numbers of the first record to read and of the one after the last; None for all.
    Attributes: `path`, the name; `has_ids`, as for `Corpus`.
    Raises: DataError if only some of them have ids.
    """

    def __init__(self, name: str, corpora: Sequence[Corpus], span: tuple[int, int] | None = None):
        self.path, self._corpora = name, corpora
        self._span = span or (0, None)
        self.has_ids = any(corpus.has_ids for corpus in corpora)
        without = [corpus.path for corpus in corpora if not corpus.has_ids]
        if self.has_ids and without:
            raise DataError(
                f"{without[0]}: its sentences have no ids, but other files of {name} have ids; "
                "expected files of the same form"
            )

    def __iter__(self) -> Iterator[Record]:
        return islice(chain.from_iterable(self._corpora), *self._span)


def _check_options(path: str, form: Form, **options: str | int | None) -> None:
    """Raise DataError if an option of a form is missing or does not apply to it."""
    for name, value in options.items():
        if value is None and name in form.required:
            raise DataError(f"{path}: --{name} is missing; it is required for {form.name}")
        if value is not None and name not in form.options:
            listed = " and ".join(other.name for other in FORMS if name in other.options)
            raise DataError(f"{path}: --{name} does not apply to {form.name}, only to {listed}")


# --- the files of a corpus, and shares for several processes ---


class Share(NamedTuple):
    """One of `n` shares of nearly equal size of a corpus: its `number`, from 0, and `n`.

    The records of all shares, in order, are those of the corpus, which each process counts first.
    """

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


def input_files(pattern: str | os.PathLike) -> list[str]:
    """Return the files or URLs of a corpus: the file of this name, or those that a pattern matches,
    sorted by name. Raises: DataError if there is none or if one is not a regular file."""
    paths = matching_files(pattern)
    require_files(paths)
    return paths


def open_corpus(
    pattern: str | os.PathLike, share: Share | None = None, **reading: Any
) -> Corpus | Corpora:
    """Return the records of a file or of all files that a pattern matches, or a share of them.

    Args:
        pattern: name, URL or pattern.
        share: the share; None for all records.
        reading: further arguments of `Corpus`.
    Raises: DataError as `input_files`, `Corpus` and `Corpora` do.
    """
    signs = TextSigns(pattern)
    corpora = [Corpus(path, **reading, signs=signs) for path in input_files(pattern)]
    if len(corpora) == 1 and share is None:
        return corpora[0]
    whole = Corpora(os.fspath(pattern), corpora)
    if share is None:
        return whole

    # The share is a range of the records, which are counted first.
    with progress("counting", "sentences") as counted:
        n_records = sum(1 for _ in counted.over(whole))
    first = n_records * share.number // share.n
    end = n_records * (share.number + 1) // share.n
    name = f"{whole.path} (share {share.number} of {share.n})"
    return Corpora(name, corpora, (first, end))
