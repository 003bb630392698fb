"""CoNLL-U: one word per line, a blank line after each sentence."""

from __future__ import annotations

from collections.abc import Iterator

from bilm.data.readers.form import Form, InputFile, Record
from bilm.data.text import read_lines
from bilm.errors import DataError

LEMMA, TAG = 2, 3  # columns
EMPTY = "_"  # a column without a value


def read_conllu(source: InputFile) -> Iterator[Record]:
    """Yield the columns FORM, LEMMA and UPOS of each sentence.

    Comments, ranges of multiword tokens (`1-2`) and empty nodes (`1.1`) are skipped.

    Raises: DataError, naming file and line, for a malformed line.
    """
    rows: list[list[str]] = []
    for number, line in read_lines(source.path, source.errors):
        if not line and rows:
            yield _record(rows)
            rows = []
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        is_number = columns[0].replace("-", "").replace(".", "").isdecimal()
        if not is_number or not "".join(columns[1:2]).strip():
            raise DataError(
                f"{source.path}, line {number}: {line[:40]!r}; expected the columns of CoNLL-U, "
                "ID and FORM first, separated by tabs"
            )
        if columns[0].isdecimal():
            if rows and int(columns[0]) <= int(rows[-1][0]):
                raise DataError(
                    f"{source.path}, line {number}: word {columns[0]} after word {rows[-1][0]}; "
                    "expected a blank line between two sentences"
                )
            rows.append(columns)
    if rows:
        yield _record(rows)


def _record(rows: list[list[str]]) -> Record:
    words = [columns[1] for columns in rows]
    lemmas, tags = ([_value(columns, k) for columns in rows] for k in (LEMMA, TAG))
    return Record(words, None, lemmas, tags)


def _value(columns: list[str], k: int) -> str | None:
    """Return a column, None if it is missing or empty. The lemma of the word `_` is `_`."""
    value = columns[k] if k < len(columns) else EMPTY
    return None if value == EMPTY and columns[1] != EMPTY else value


FORM = Form(
    name="CoNLL-U",
    endings=(".conllu",),
    help="words from the FORM column",
    read=read_conllu,
)
