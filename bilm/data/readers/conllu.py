"""CoNLL-U: one word per line, a blank line after each sentence."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.data.readers.form import Form, InputFile, Record
from bilm.data.text import read_lines
from bilm.errors import DataError


def read_conllu(source: InputFile) -> Iterator[Record]:
    """Yield the FORM column of each sentence.

    Comments, ranges of multiword tokens (`1-2`) and empty nodes (`1.1`) are skipped.

    Raises: DataError, naming file and line, for a malformed line.
    """
    words: list[str] = []
    for number, line in read_lines(source.path, source.errors):
        if not line and words:
            yield Record(words)
            words = []
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) < 2 or not columns[0].replace("-", "").replace(".", "").isdecimal():
            raise DataError(
                f"{source.path}, line {number}: {line[:40]!r}; expected the columns of CoNLL-U, "
                "ID and FORM first, separated by tabs"
            )
        if columns[0].isdecimal():
            words.append(columns[1])
    if words:
        yield Record(words)


FORM = Form(
    name="CoNLL-U", endings=(".conllu",), help="words from the FORM column", read=read_conllu
)
