"""Results: text or JSON on standard output, and tables in files or on standard output."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bilm.commands.terminal import printable
from bilm.errors import OptionsError
from bilm.support.files import replacing
from bilm.support.imports import optional

ROW_GROUP = 10_000  # rows per row group of a Parquet file
TABLES = {".csv": ",", ".tsv": "\t", ".parquet": ""}  # endings of tables, and their delimiters

Row = Sequence[Any]
Write = Callable[[Row], object]


def show(found: Mapping[str, Any], text: str, json: bool) -> None:
    """Print a result: one line of JSON, or text with control characters escaped."""
    print(as_json(found) if json else printable(text))


def as_json(found: Any, indent: int | None = None) -> str:
    """Return JSON, on one line if `indent` is None. Non-finite numbers, which JSON cannot
    represent, become null."""
    text = json.dumps(_finite(found), ensure_ascii=False, indent=indent)
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Column(NamedTuple):
    """A column of a table.

    Fields:
        name: its name.
        type: the type of its values: str, float, int or bool; nan is a missing value.
    """

    name: str
    type: type


@contextmanager
def table(
    output: str | None, columns: Sequence[Column], inputs: Iterable[str | None] = ()
) -> Iterator[Write]:
    """Yield a function that writes a row of a table.

    In CSV and TSV, fields are quoted where necessary, and a missing value is an empty field:
    `pandas.read_csv(FILE, keep_default_na=False, na_values=[""])` keeps the word "NA".

    Args:
        output: the file to write, whose ending selects the format; it is created when the block
            ends. None to print TSV to standard output, with control characters escaped.
        columns: the columns, whose names are the header.
        inputs: files that the output must not replace.
    Raises: OptionsError for an unsupported ending; DataError if the output is also an input.
    """
    if output is None:
        yield _delimited(_Printed(), columns, "\t")
        return
    from bilm.storage.formats.base import protect  # imports NumPy, which --help does without

    ending = table_ending(output)
    protect(output, *inputs)
    with replacing(output) as temporary:
        if ending == ".parquet":
            with _parquet(temporary, columns) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield _delimited(file, columns, TABLES[ending])


def table_ending(output: str) -> str:
    """Return the ending of a table's file. Raises: OptionsError if it is unknown."""
    ending = Path(output).suffix.lower()
    if ending not in TABLES:
        known = ", ".join(TABLES)
        raise OptionsError(f"{output}: unknown ending {ending!r}; expected one of {known}")
    return ending


class _Printed:
    """Standard output with control characters escaped."""

    def write(self, text: str) -> None:
        sys.stdout.write(printable(text))


def _delimited(file: Any, columns: Sequence[Column], delimiter: str) -> Write:
    """Write the header of a CSV or TSV table; return the function that writes a row."""
    rows = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    rows.writerow(column.name for column in columns)
    return lambda row: rows.writerow(map(_field, row))


def _field(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6f}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _parquet(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    arrow, parquet = (
        optional(name, "parquet", "Parquet") for name in ("pyarrow", "pyarrow.parquet")
    )
    types = {str: arrow.string(), float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_()}
    schema = arrow.schema([(column.name, types[column.type]) for column in columns])
    waiting: list[Row] = []
    with parquet.ParquetWriter(path, schema) as file:

        def flush() -> None:
            values = zip(*waiting, strict=True) if waiting else [()] * len(columns)
            arrays = [
                arrow.array(column, field.type, from_pandas=field.type == arrow.float64())
                for column, field in zip(values, schema, strict=True)
            ]
            file.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            waiting.clear()

        def write(row: Row) -> None:
            waiting.append(row)
            if len(waiting) >= ROW_GROUP:
                flush()

        yield write
        flush()
