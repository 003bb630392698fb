"""The standard streams; results as text or JSON on standard output, and tables."""

import csv
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from bilm.support.files import protect, replacing
from bilm.support.imports import optional

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0, DEL and C1, without tabs and line ends
MISSING = math.nan  # a missing value of a column of numbers
ROW_GROUP = 10_000  # rows per row group of a Parquet file
TABLES = {".csv": ",", ".tsv": "\t", ".parquet": ""}  # endings of tables, and their delimiters

Columns = Mapping[str, type]  # names and types of the values: str, float, int or bool
Row = Sequence[Any]


def printable(text: str) -> str:
    r"""Return the text with control characters, except tabs and line ends, escaped as `\x1b`."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def flush_output() -> None:
    """Flush standard output, or discard its text, so that Python can exit. Raises: OSError."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise


def say(line: str) -> None:
    """Print a line on standard error after the output; ignore errors in writing it."""
    with suppress(OSError):
        flush_output()
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


def show(values: object, text: str, json: bool, indent: int | None = None) -> None:
    """Print a result: JSON, see `as_json`, or text with control characters escaped."""
    print(as_json(values, indent) if json else printable(text))


def as_json(value: object, indent: int | None = None) -> str:
    """Return JSON, on one line if `indent` is None, with null for numbers that are not finite."""
    text = json.dumps(_finite(value), ensure_ascii=False, indent=indent)
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(
    columns: Iterable[tuple[str, type]], rows: Iterable[Row], title: str | None = None
) -> None:
    """Print a table for people: text to the left, numbers to the right, missing values as "-"."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name, type in columns:
        justify: Literal["left", "right"] = "left" if type is str else "right"
        widest = max(map(len, name.split()), default=0)  # whole words, also in a narrow terminal
        grid.add_column(name, justify=justify, min_width=widest)
    for row in rows:
        grid.add_row(*(Text(printable(for_people(value))) for value in row))

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(file=sys.stdout, width=None if has_width else 120, highlight=False)
    console.print(grid)


def for_people(value: object) -> str:
    """Return a value as text, with five significant digits and thousands separated."""
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.5g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def write_table(
    output: str | None, columns: Columns, rows: Iterable[Row], inputs: Iterable[str | None] = ()
) -> None:
    """Write a table, row by row as they are computed, to a file whose ending, one of `TABLES`,
    selects the format, and which is created after the last row; None prints TSV, with control
    characters escaped. A missing value is an empty field, or null in Parquet. Raises: DataError if
    the file is one of the `inputs`."""
    if output is None:
        _write_delimited(_Printed(), columns, rows, "\t")
        return
    ending = Path(output).suffix.lower()
    protect(output, *inputs)
    with replacing(output) as temporary:
        if ending == ".parquet":
            _write_parquet(temporary, columns, rows)
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                _write_delimited(file, columns, rows, TABLES[ending])


class _Printed:
    def write(self, text: str) -> None:
        sys.stdout.write(printable(text))


def _write_delimited(file: Any, columns: Columns, rows: Iterable[Row], delimiter: str) -> None:
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(map(_field, row))


def _field(value: object) -> str:
    """Return a value of a CSV or TSV table, with six significant digits."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _write_parquet(path: Path, columns: Columns, rows: Iterable[Row]) -> None:
    arrow = optional("pyarrow", "parquet", "Parquet")
    parquet = optional("pyarrow.parquet", "parquet", "Parquet")
    types = {str: arrow.string(), float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, types[type]) for name, type in columns.items()])
    values = ([None if value != value else value for value in row] for row in rows)  # nan: missing
    with parquet.ParquetWriter(path, schema) as file:
        while group := list(islice(values, ROW_GROUP)):
            records = [dict(zip(columns, row, strict=True)) for row in group]
            file.write_batch(arrow.RecordBatch.from_pylist(records, schema))
