"""Tables: one row per sentence, in CSV, TSV, JSON Lines or Parquet.

CSV and TSV are read, and written by `bilm.commands.output`, as pandas does by default (RFC 4180). A
field that starts with `"` but is not quoted correctly is an error, as are rows that it may join.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bilm.data.readers.form import TOKENIZE, Form, InputFile, Record, Split, checked_id
from bilm.data.text import MAX_LINE_BYTES, opened, placed_lines, read_lines, unpacked_name
from bilm.errors import DataError
from bilm.options.schema import object_of
from bilm.support.imports import optional

QUOTING: dict[str, Any] = {"csv": csv.QUOTE_MINIMAL, "none": csv.QUOTE_NONE}
BATCH_ROWS = 1024  # rows of a Parquet file read at a time

Rows = Iterator[tuple[str, Mapping[str, Any]]]  # the place, for messages; values by column


def delimited_rows(source: InputFile, columns: Sequence[str]) -> Rows:
    """Yield the rows of a CSV or TSV file with a header line; see the module."""
    delimiter = "\t" if unpacked_name(source.path).endswith(".tsv") else ","
    lines = (text for *_, text in placed_lines(source.path, source.reading.on_bad_utf8))
    quoting = QUOTING[source.reading.quoting or "csv"]
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    where = f"{source.path}, line 1"
    try:
        header = next(rows, [])
        marks = ";\t|,".replace(delimiter, "")
        others = [mark for mark in marks if any(mark in name for name in header)]
        hint = f"; the delimiter seems to be {others[0]!r}: convert the file" if others else ""
        check_columns(columns, header, where, hint)
        where = f"{source.path}, line {rows.line_num + 1}"
        for row in rows:
            if row and len(row) != len(header):  # not a blank line
                raise csv.Error(
                    f"found {len(row)} columns, expected the {len(header)} of the header"
                )
            if source.reading.quoting is None and _may_be_rows(row, delimiter):
                raise csv.Error("a field contains line ends, which may be those of several rows")
            if len(row) > 1 and row == header:
                raise DataError(f"{where}: the header again; remove the headers of joined files")
            if row:
                yield where, dict(zip(header, row, strict=True))
            where = f"{source.path}, line {rows.line_num + 1}"
    except csv.Error as error:
        raise DataError(
            f"{where}: {error}; lines must end with \\n, and fields must be quoted as in CSV "
            "(--quoting csv) or not at all (--quoting none)"
        ) from error


def _may_be_rows(row: list[str], delimiter: str) -> bool:
    """Return whether quotation marks of two texts may have joined rows: a row has several lines,
    each with as many fields as the row, and no doubled marks inside a field, as if quoted."""
    lines = delimiter.join(row).split("\n")
    lengths = {line.count(delimiter) + 1 for line in lines if line.strip()}
    is_quoted = any('"' in field for field in row if "\n" in field)
    return len(lines) > 1 and lengths == {len(row)} and not is_quoted


def jsonl_rows(source: InputFile, columns: Sequence[str]) -> Rows:
    """Yield the rows of a file with one JSON object per line; blank lines are skipped."""
    for number, line in read_lines(source.path, source.reading.on_bad_utf8):
        if not line:
            continue
        where = f"{source.path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=object_of)
            if "\\u" in line:  # may be half a character, which no file can contain
                json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: invalid JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: found {line[:40]!r}, expected a JSON object")
        check_columns(columns, list(row), where)
        yield where, row


def parquet_rows(source: InputFile, columns: Sequence[str]) -> Rows:
    """Yield the rows of a Parquet file. Raises: DataError; BilmError if pyarrow is missing."""
    path = source.path
    pyarrow = optional("pyarrow", "parquet", f"{path}: Parquet")
    parquet = optional("pyarrow.parquet", "parquet", f"{path}: Parquet")
    try:
        with opened(path) as content, parquet.ParquetFile(content) as file:
            check_columns(columns, file.schema_arrow.names, path)
            batches = file.iter_batches(BATCH_ROWS, columns=columns)
            rows = chain.from_iterable(batch.to_pylist() for batch in batches)
            for number, row in enumerate(rows, start=1):
                yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error


ROWS = {
    ".csv": delimited_rows,
    ".tsv": delimited_rows,
    ".jsonl": jsonl_rows,
    ".ndjson": jsonl_rows,
    ".parquet": parquet_rows,
}


def check_columns(columns: Sequence[str], names: Sequence[str], where: str, hint: str = "") -> None:
    """Raise DataError if a column is missing among the names of a table, or occurs twice."""
    for name in columns:
        if names.count(name) != 1:
            problem = "occurs twice" if name in names else "is missing"
            listed = ", ".join(map(repr, names[:20])) or "none"
            raise DataError(f"{where}: column {name!r} {problem}; found {listed}{hint}")


def table_rows(source: InputFile, columns: Sequence[str]) -> Rows:
    """Yield the rows of a table. Raises: DataError if it cannot be read or lacks a column."""
    return ROWS[Path(unpacked_name(source.path)).suffix](source, columns)


def words_of(row: Mapping[str, Any], column: str, split: Split, where: str) -> Iterable[list[str]]:
    """Return the sentences of a cell: a list of words, or a text, which is split; a missing value
    is an empty text. Raises: DataError for a value of another type."""
    value = row[column]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [value]
    if value is None or isinstance(value, str):
        return split([value or ""])
    raise DataError(f"{where}: {column!r} is {repr(value)[:40]}, expected text or a list of words")


def text_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Return a text or an integer as a text. Raises: DataError if it cannot be an id."""
    value = row[column]
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise DataError(f"{where}: {column!r} is {repr(value)[:40]}, expected text or an integer")
    return checked_id(str(value), where)


def read_table(source: InputFile) -> Iterator[Record]:
    """Yield the sentences in the text column of each row, with the row's id."""
    reading = source.reading
    if reading.column is None:
        raise DataError(f"{source.path}: --column is missing; it is required for tables")
    names = dict.fromkeys((reading.column, reading.id_column, *reading.keep))
    columns = [name for name in names if name is not None]
    for where, row in table_rows(source, columns):
        id_ = None
        if reading.id_column is not None:
            id_ = text_of(row, reading.id_column, where)
        kept = {name: "" if row[name] is None else str(row[name]) for name in reading.keep}
        for words in words_of(row, reading.column, reading.split, where):
            yield Record(words, id_, kept=kept)


FORM = Form(
    name="tables",
    endings=tuple(ROWS),
    help="tables; --column selects the column of text or of lists of words",
    read=read_table,
    options={
        "column": "Column of a table that contains the text.",
        "id_column": "Column of a table that contains the ids.",
        "keep": "Columns of a table to repeat in the result, such as item,condition.",
        "quoting": "Quoting of CSV and TSV.",
        **TOKENIZE,
    },
)
