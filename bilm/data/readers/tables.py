r"""Tables: one row per sentence, in CSV, TSV, JSON Lines or Parquet.

CSV and TSV are read and written, by `bilm.commands.output`, as pandas reads and writes them by
default (RFC 4180): a field that contains the delimiter, `"` or a line break is enclosed in `"`, and
each `"` inside it is doubled. Quotation marks elsewhere, as in `a "b"`, are part of the text.

Some programs write TSV without quoting, and `"Hello ."` is then text with two quotation marks. A
field that starts with `"` but is not quoted correctly is an error. A field that can be read in both
ways is read as quoted, with one warning per file: the row is also valid if quotation marks have no
meaning, and neither the column's header is quoted nor are quotation marks doubled inside the field.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from bilm.data.compression import unpacked_name
from bilm.data.readers.form import (
    RECORDS,
    Form,
    InputFile,
    Record,
    checked_id,
    unit_of_lines,
)
from bilm.data.text import read_lines, whole_lines
from bilm.errors import DataError
from bilm.support.imports import optional
from bilm.support.remote import open_reader
from bilm.support.urls import is_url

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


def delimited_rows(source: InputFile, cells: Cells, delimiter: str = ",") -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file with a header line; see the module."""
    path = source.path
    lines: list[str] = []  # of the current row

    def read() -> Iterator[str]:
        for line in whole_lines(path, source.errors):
            lines.append(line)
            yield line

    rows, start = csv.reader(read(), delimiter=delimiter, strict=True), 1
    try:
        header = next(rows, [])
        places = cells.places(header, f"{path}, line 1")
        must_warn = delimiter == "\t" and not _is_quoted(cells.column, lines)
        while True:
            lines.clear()
            start = rows.line_num + 1
            if (row := next(rows, None)) is None:
                return
            if not row:  # a blank line
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{path}, line {rows.line_num}: found {len(row)} columns, expected the "
                    f"{len(header)} of the header"
                )
            text, *id_ = (row[place] for place in places)
            if must_warn and _may_be_unquoted(text, lines, len(header)):
                must_warn = False
                logging.warning(
                    "%s, line %d: quotation marks around %r are read as quotes of the field, not "
                    "as text; if the table was written without quoting, convert it to JSON Lines",
                    path, start, text[:40],
                )  # fmt: skip
            yield (id_[0] if id_ else None), text
    except csv.Error as error:
        hint = ""
        if delimiter == "\t" and any('"' in line for line in lines):
            hint = (
                f" in the row that starts on line {start}; a field that starts with a quotation "
                "mark must be quoted as in CSV; convert a table without quoting to JSON Lines"
            )
        raise DataError(f"{path}, line {rows.line_num}: {error}{hint}") from error


def _is_quoted(text: str, lines: Sequence[str]) -> bool:
    """Whether a field is enclosed in quotation marks in the lines of its row."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"' in "".join(lines)


def _may_be_unquoted(text: str, lines: Sequence[str], n_columns: int) -> bool:
    """Whether a quoted field of a TSV file may be text with quotation marks; see the module."""
    return (
        '"' in lines[0]
        and text != ""
        and _is_quoted(text, lines)
        and all(line.count("\t") == n_columns - 1 for line in lines)
        and (len(lines) > 1 or '"' not in text)
    )


def jsonl_rows(source: InputFile, cells: Cells) -> Iterator[Row]:
    """Yield the rows of a file with one JSON object per line; blank lines are skipped."""
    path = source.path
    for number, line in read_lines(path, source.errors, source.span, source.n_before):
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


def parquet_rows(source: InputFile, cells: Cells) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raises: DataError; BilmError if pyarrow is missing."""
    path = source.path
    with _open_parquet(path) as file:
        cells.places(file.schema_arrow.names, path)
        names = [name for name in cells if name is not None]
        number = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=names):
            columns = {name: batch.column(name).to_pylist() for name in dict.fromkeys(names)}
            for i, text in enumerate(columns[cells.column]):
                number += 1
                id_ = columns[cells.id_column][i] if cells.id_column is not None else None
                yield _checked(text, id_, cells, f"{path}, row {number}")


@contextmanager
def _open_parquet(path: str) -> Iterator[Any]:
    """Yield an open Parquet file or URL.

    Raises: DataError if it cannot be read, also in the block; BilmError if pyarrow is missing.
    """
    pyarrow = optional("pyarrow", "parquet", f"{path}: Parquet")
    parquet = optional("pyarrow.parquet", "parquet", f"{path}: Parquet")
    try:
        with parquet.ParquetFile(open_reader(path) if is_url(path) else path) as file:
            yield file
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


ROWS: dict[str, Callable[[InputFile, Cells], Iterator[Row]]] = {
    ".csv": delimited_rows,
    ".tsv": partial(delimited_rows, delimiter="\t"),
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
    ending = Path(unpacked_name(source.path)).suffix
    cells = Cells(source.column, source.id_column)
    for id_, text in ROWS[ending](source, cells):
        id_ = None if id_ is None else checked_id(id_, source.path)
        for words in source.split(text) if isinstance(text, str) else [text]:
            yield Record(words, id_)


def unit_of(path: str) -> str:
    """Return the unit of a table (`Form.unit`); a row of CSV may contain line breaks."""
    is_jsonl = ROWS[Path(unpacked_name(path)).suffix] is jsonl_rows
    return unit_of_lines(path) if is_jsonl else RECORDS


FORM = Form(
    name="tables",
    endings=tuple(ROWS),
    help="tables; --column selects the column of text or of lists of words",
    read=read_table,
    options=frozenset({"column", "id_column", "tokenize"}),
    required=frozenset({"column"}),
    unit=unit_of,
)
