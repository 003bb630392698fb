"""CoNLL-U: one word per line, a blank line after each sentence."""

import re
from collections.abc import Iterator
from itertools import chain

from bilm.data.readers.form import Form, InputFile, Record
from bilm.data.text import read_lines
from bilm.errors import DataError

ID, WORD, LEMMA, TAG = 0, 1, 2, 3  # columns
COLUMNS = re.compile(r"# *global\.columns *=(.*)")  # a comment of CoNLL-U Plus
EMPTY = "_"  # a column without a value


def read_conllu(source: InputFile) -> Iterator[Record]:
    """Yield the columns FORM, LEMMA and UPOS of each sentence; skip comments, empty nodes (`1.1`)
    and multiword tokens (`1-2`), or the words of the latter if `surface`. Raises: DataError."""
    rows: list[list[str]] = []
    end = 0  # number of the last word of the multiword token that is read
    lines = read_lines(source.path, source.reading.on_bad_utf8)
    for number, line in chain(lines, [(0, "")]):  # the last sentence may lack its blank line
        if not line and rows:
            words = [columns[WORD] for columns in rows]
            lemmas = [_value(columns, LEMMA) for columns in rows]
            tags = [_value(columns, TAG) for columns in rows]
            yield Record(words, None, lemmas, tags)
            rows, end = [], 0
        where = f"{source.path}, line {number}"
        if (match := COLUMNS.fullmatch(line)) and match[1].split()[:2] != ["ID", "FORM"]:
            raise DataError(f"{where}: {line[:60]!r}; expected the columns ID and FORM first")
        if not line or (line.startswith("#") and "\r" not in line):
            continue
        columns = line.split("\t")
        id_ = columns[ID]
        number_of_word = id_.lstrip("0").replace("-", "").replace(".", "")  # 0.1 is an empty node
        is_numbered = number_of_word.isdecimal() and "\r" not in line
        if not is_numbered or len(columns) <= WORD or not columns[WORD].strip():
            raise DataError(
                f"{where}: {line[:40]!r}; expected the columns of CoNLL-U, ID (from 1) and FORM "
                "first, separated by tabs, and lines that end with \\n"
            )
        first, _, last = id_.partition("-")
        if last.isdecimal() and source.reading.surface:
            end = int(last)
        elif not id_.isdecimal() or int(id_) <= end:
            continue
        if rows and first.isdecimal() and int(first) <= int(rows[-1][ID].rpartition("-")[2]):
            raise DataError(
                f"{where}: word {id_} after word {rows[-1][ID]}; expected a blank line between "
                "two sentences"
            )
        rows.append(columns)


def _value(columns: list[str], k: int) -> str | None:
    """Return a column, None if it is missing or empty. The lemma of the word `_` is `_`."""
    value = columns[k] if k < len(columns) else EMPTY
    return None if value == EMPTY and columns[WORD] != EMPTY else value


FORM = Form(
    name="CoNLL-U",
    endings=(".conllu",),
    help="words from the FORM column",
    read=read_conllu,
    options={
        "surface": "Write the surface forms of multiword tokens of CoNLL-U, such as du, instead of "
        "their words, such as de le."
    },
)
