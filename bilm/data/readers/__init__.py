"""Readers of input files: text here, every other form in a module with a `FORM` that declares it,
from which help and error messages follow. To add one, add its `FORM` to `FORMS`."""

import os
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from absl import logging

from bilm.data.profile import SIGNS, TextSigns
from bilm.data.readers import conllu, fasta, tables
from bilm.data.readers.form import TOKENIZE, Form, InputFile, Reading, Record
from bilm.data.text import matching_files, read_lines, unpacked_name, writing_text
from bilm.errors import DataError
from bilm.support.files import protect
from bilm.support.progress import Progress
from bilm.support.urls import PathLike


def read_text(source: InputFile) -> Iterator[Record]:
    """Yield a record per line, also for an empty one; or the sentences of each paragraph."""
    lines = (line for _, line in read_lines(source.path, source.reading.on_bad_utf8))
    return map(Record, source.reading.split(map(source.watch, lines)))


TEXT = Form(
    name="text",
    endings=(),
    help="text, one sentence per line, words separated by blanks; --tokenize splits other text",
    read=read_text,
    options=TOKENIZE,
)
TABLES = tables.FORM
FORMS = (TABLES, conllu.FORM, fasta.FORM, TEXT)
OPTIONS = {name: help for form in FORMS for name, help in form.options.items()}  # and their help


def form_of(path: PathLike) -> Form:
    """Return the form of a file by the ending of its name, before the ending of a compression."""
    ending = Path(unpacked_name(path)).suffix
    return next((form for form in FORMS if ending in form.endings), TEXT)


class Corpus:
    """The records of a file or URL, whose ending determines its form. Iterable repeatedly. `signs`
    keeps words of the first iteration, and is shared by the files of a text. Attributes: `path`,
    `form`, and `has_ids`, whether records have ids. Raises: DataError for an option that does not
    apply to the form; iterating also for the file."""

    def __init__(
        self,
        path: PathLike,
        reading: Reading | None = None,
        signs: TextSigns | None = None,
    ):
        self.path = os.path.expanduser(os.fspath(path))
        self.form = form_of(self.path)
        reading = reading or Reading()
        self.has_ids = self.form.has_ids or reading.id_column is not None

        for name in OPTIONS:
            is_chosen = getattr(reading, name) != getattr(Reading, name)
            if is_chosen and name not in self.form.options:
                forms = [form.name for form in FORMS if name in form.options]
                raise DataError(
                    f"{self.path}: --{name} does not apply to {self.form.name}, only to "
                    f"{' and '.join(forms)}"
                )
        if reading.split_sentences and (reading.tokenize is None or self.has_ids):
            problem = "ids would not be unique" if self.has_ids else "--tokenize is missing"
            raise DataError(f"{self.path}: --split_sentences cannot be used: {problem}")

        # Words are examined in the first iteration; sequences are only compared with a model's.
        self._signs: TextSigns | None = signs or TextSigns(path)
        if not self.form.is_text:
            self._signs.reported.update(SIGNS)
        self._source = InputFile(self.path, reading, self._signs.add_line)

    def __iter__(self) -> Iterator[Record]:
        records = self.form.read(self._source)
        if self._signs is None:
            return records
        signs = self._signs
        self._signs = None
        return signs.watch(records, itemgetter(0))  # the words of a record


def text(input: PathLike, output: PathLike, **reading: Any) -> tuple[int, int]:
    """Write a corpus of any form as text, one sentence per line, as `bilm text` does; return the
    numbers of its sentences and words.

    Args:
        input: a file, a pattern of several, or a URL.
        output: text file, compressed if its name ends with .gz, .bz2, .xz or .zst.
        reading: fields of `Reading`, such as `column` and `tokenize`.
    Raises: DataError.
    """
    paths = matching_files(input)
    protect(output, *paths)
    signs = TextSigns(input)
    corpora = [Corpus(path, Reading(**reading), signs) for path in paths]
    n_words = n_changed = 0
    written = Progress("writing", "sentences")
    with writing_text(output) as file:
        for record in written.over(chain.from_iterable(corpora)):
            words = " ".join(record.words).split()  # as readers of the text will split it
            n_words += len(words)
            n_changed += words != record.words
            file.write(" ".join(words) + "\n")
    if n_changed:
        logging.warning(
            "%s: in %s sentences a word is empty or contains blanks; the text has other words "
            "there, because text is split at whitespace", output, f"{n_changed:,}"
        )  # fmt: skip
    return written.n_done, n_words
