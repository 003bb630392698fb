"""The standard streams; results as text or JSON on standard output, and tables.

--help imports this module, so NumPy is imported in functions only.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bilm.support.files import protect, replacing
from bilm.support.imports import optional

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0, DEL and C1, without tabs and line ends
MISSING = math.nan  # a missing value of a column of numbers
ROW_GROUP = 10_000  # rows per row group of a Parquet file
TABLES = {".csv": ",", ".tsv": "\t", ".parquet": ""}  # endings of tables, and their delimiters

Row = Sequence[Any]
Write = Callable[[Row], object]


# --- standard streams ---


def printable(text: str) -> str:
    r"""Return the text with control characters escaped, such as `\x1b`; tabs and line ends stay.

    Text from files could otherwise move the cursor of a terminal or change its title.
    """
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def flush_output() -> None:
    """Flush standard output. Raises: OSError.

    After an error, the unwritten text is discarded, so that Python does not fail at exit.
    """
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


# --- results ---


def show(values: Mapping[str, Any], text: str, json: bool) -> None:
    """Print a result: one line of JSON, or text with control characters escaped."""
    print(as_json(values) if json else printable(text))


def as_json(value: Any, indent: int | None = None) -> str:
    """Return JSON, on one line if `indent` is None. Non-finite numbers, which JSON cannot
    represent, become null."""
    text = json.dumps(_finite(value), ensure_ascii=False, indent=indent)
    return text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Column(NamedTuple):
    """A column of a table.

    Fields:
        name: its name.
        type: the type of its values: str, float, int or bool; nan is a missing value.
    """

    name: str
    type: type


def print_table(columns: Sequence[Column], rows: Iterable[Row], title: str | None = None) -> None:
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
        grid.add_row(*(Text(printable(_for_people(value))) for value in row))

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(file=sys.stdout, width=None if has_width else 120, highlight=False)
    console.print(grid)


def _for_people(value: Any) -> str:
    """Return a value of a printed table, with five significant digits and thousands separated."""
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.5g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


@contextmanager
def table(
    output: str | None, columns: Sequence[Column], inputs: Iterable[str | None] = ()
) -> Iterator[Write]:
    """Yield a function that writes a row of a table.

    In CSV and TSV, fields are quoted where necessary, as `bilm.data.readers.tables` reads them, and
    a missing value is an empty field:
    `pandas.read_csv(FILE, keep_default_na=False, na_values=[""])` keeps the word "NA".

    Args:
        output: the file to write, whose ending, one of `TABLES`, selects the format; it is created
            when the block ends. None prints TSV, with control characters escaped.
        columns: the columns, whose names are the header.
        inputs: files that the output must not replace.
    Raises: DataError if the output is also an input.
    """
    if output is None:
        yield _delimited(_Printed(), columns, "\t")
        return
    ending = Path(output).suffix.lower()
    protect(output, *inputs)
    with replacing(output) as temporary:
        if ending == ".parquet":
            with _parquet(temporary, columns) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield _delimited(file, columns, TABLES[ending])


class _Printed:
    """Standard output with control characters escaped."""

    def write(self, text: str) -> None:
        sys.stdout.write(printable(text))


def _delimited(file: SupportsWrite[str], columns: Sequence[Column], delimiter: str) -> Write:
    """Write the header of a CSV or TSV table; return the function that writes a row."""
    rows = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    rows.writerow(column.name for column in columns)
    return lambda row: rows.writerow(map(_field, row))


def _field(value: Any) -> str:
    """Return a value of a CSV or TSV table, with six significant digits."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


@contextmanager
def _parquet(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    """Yield the function that writes a row of a Parquet table."""
    arrow = optional("pyarrow", "parquet", "Parquet")
    parquet = optional("pyarrow.parquet", "parquet", "Parquet")
    types = {
        str: arrow.string(),
        float: arrow.float64(),
        int: arrow.int64(),
        bool: arrow.bool_(),
    }
    schema = arrow.schema([(column.name, types[column.type]) for column in columns])
    waiting: list[dict[str, Any]] = []  # rows of the next group
    with parquet.ParquetWriter(path, schema) as file:

        def flush() -> None:
            file.write_batch(arrow.RecordBatch.from_pylist(waiting, schema))
            waiting.clear()

        def write(row: Row) -> None:
            values = (None if value != value else value for value in row)  # nan is missing
            waiting.append(dict(zip(schema.names, values, strict=True)))
            if len(waiting) >= ROW_GROUP:
                flush()

        yield write
        flush()
