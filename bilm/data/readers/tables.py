"""Tables: one row per sentence, in CSV, TSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bilm.data.readers.form import Form, InputFile, Record, checked_id
from bilm.data.text import read_lines, whole_lines
from bilm.errors import DataError
from bilm.support.imports import optional

BATCH_ROWS = 1024  # rows of a Parquet file read at a time

Row = tuple[str | None, str | list[str]]  # the id; the text or its words


class Cells(NamedTuple):
    """The names of the text column and the id column; `id_column` is None if there are no ids."""

    column: str
    id_column: str | None = None

    def places(self, names: Sequence[str], where: str) -> list[int]:
        """Return the positions of the columns among the names of a table's columns.

        Raises: DataError if one is missing or occurs twice.
        """
        found = [name for name in self if name is not None]
        for name in found:
            if (times := list(names).count(name)) != 1:
                listed = ", ".join(map(repr, names[:20]))
                problem = "occurs twice" if times else "is missing"
                raise DataError(f"{where}: column {name!r} {problem}; found {listed or 'none'}")
        return [list(names).index(name) for name in found]


def delimited_rows(path: str, cells: Cells, decoding: str, **dialect: Any) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file with a header line (RFC 4180)."""
    rows = csv.reader(whole_lines(path, decoding), strict=True, **dialect)
    try:
        header = next(rows, [])
        places = cells.places(header, f"{path}, line 1")
        for row in rows:
            if not row:  # a blank line
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{path}, line {rows.line_num}: found {len(row)} columns, expected the "
                    f"{len(header)} of the header"
                )
            text, *id_ = (row[place] for place in places)
            yield (id_[0] if id_ else None), text
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: {error}") from error


def jsonl_rows(path: str, cells: Cells, decoding: str) -> Iterator[Row]:
    """Yield the rows of a file with one JSON object per line; blank lines are skipped."""
    for number, line in read_lines(path, decoding):
        if not line:
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=tuple)  # a dict would drop duplicate keys
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error})") from error
        if not isinstance(row, tuple):
            raise DataError(f"{where}: found {line[:40]!r}, expected a JSON object")
        places = cells.places([name for name, _ in row], where)
        text, *id_ = (row[place][1] for place in places)
        yield _checked(text, id_[0] if id_ else None, cells, where)


def parquet_rows(path: str, cells: Cells, decoding: str) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raises: DataError; BilmError if pyarrow is missing."""
    del decoding  # text in Parquet is always UTF-8
    pyarrow = optional("pyarrow", "parquet", f"{path}: Parquet")
    parquet = optional("pyarrow.parquet", "parquet", f"{path}: Parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            cells.places(file.schema_arrow.names, path)
            names = [name for name in cells if name is not None]
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                columns = {name: batch.column(name).to_pylist() for name in dict.fromkeys(names)}
                for i, text in enumerate(columns[cells.column]):
                    number += 1
                    id_ = columns[cells.id_column][i] if cells.id_column is not None else None
                    yield _checked(text, id_, cells, f"{path}, row {number}")
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error


def _checked(text: Any, id_: Any, cells: Cells, where: str) -> Row:
    """Return the id and the text of a row. Raises: DataError if a value has an unsupported type."""
    is_words = isinstance(text, list) and all(isinstance(word, str) for word in text)
    if not (text is None or isinstance(text, str) or is_words):
        raise DataError(
            f"{where}: {cells.column!r} is {repr(text)[:40]}, expected text or a list of words"
        )
    if cells.id_column is not None and (not isinstance(id_, str | int) or isinstance(id_, bool)):
        raise DataError(
            f"{where}: {cells.id_column!r} is {repr(id_)[:40]}, expected text or an integer"
        )
    for value in (*text, id_) if is_words else (text, id_):
        try:
            isinstance(value, str) and value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}: {value[:40]!r} contains an unpaired surrogate ({error})"
            ) from error
    return (None if id_ is None else str(id_)), text or ""


ROWS: dict[str, Callable[[str, Cells, str], Iterator[Row]]] = {
    ".csv": delimited_rows,
    ".tsv": partial(delimited_rows, delimiter="\t", quoting=csv.QUOTE_NONE),
    ".jsonl": jsonl_rows,
    ".ndjson": jsonl_rows,
    ".parquet": parquet_rows,
}


def read_table(source: InputFile) -> Iterator[Record]:
    """Yield the sentences of the text column of each row, with the row's id if there is an id
    column.

    In JSON Lines and Parquet a cell may also be a list of words. A missing value is a sentence
    without words. Raises: DataError, naming the file and the line or row, if a row cannot be read.
    """
    assert source.column is not None  # it is a required option
    ending = Path(source.path.lower().removesuffix(".gz")).suffix
    cells = Cells(source.column, source.id_column)
    for id_, text in ROWS[ending](source.path, cells, source.errors):
        id_ = None if id_ is None else checked_id(id_, source.path)
        for words in source.split(text) if isinstance(text, str) else [text]:
            yield Record(words, id_)


FORM = Form(
    name="tables",
    endings=tuple(ROWS),
    help="tables; --column selects the column of text or of lists of words",
    read=read_table,
    options=frozenset({"column", "id_column", "tokenize"}),
    required=frozenset({"column"}),
)
