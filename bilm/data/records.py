"""A corpus of any form -> its records: the words of a sentence, and its id where it has one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bilm.data.shards import DECODING, Shards
from bilm.data.tables import Cells, csv_rows, jsonl_rows, parquet_rows, tsv_rows
from bilm.data.tokenizers import tokenizer
from bilm.errors import DataError

TABLES = {
    ".csv": csv_rows,
    ".tsv": tsv_rows,
    ".jsonl": jsonl_rows,
    ".ndjson": jsonl_rows,
    ".parquet": parquet_rows,
}
FASTA = (".fasta", ".fa", ".faa", ".fna")
MAX_ID = 1000  # characters; formats that keep ids side by side give each as many as the longest


class Record(NamedTuple):
    """A sentence: its words, and its id or None."""

    words: list[str]
    id: str | None = None


class Corpus:
    """The records of a file, plain or gzip, whose name says its form; iterate as often as needed.

    - `.conllu`: the words are the FORM column, without the ranges of multiword tokens (1-2) and
      empty nodes (1.1).
    - `.csv`, `.tsv` with a header line, `.jsonl`, `.ndjson`, `.parquet`: a row is a sentence, in
      `column`. In the last three a cell may also be a list of words. An empty or missing value is a
      sentence without words. In `.tsv`, quotes are characters like others.
    - `.fasta`, `.fa`, `.faa`, `.fna`: a record is a sentence, each residue a word, in upper case. A
      `*` at its end is left out. Its id is the first word of its header.
    - Any other: a line is a sentence, also an empty one.

    Args:
        path: the file.
        column: of a table, with the text.
        id_column: of a table, with the ids, text or integers; None for no ids.
        id_field: of a FASTA header, split at `|` and blanks, the part that is the id, from 0.
        tokenize: a language by whose rules spaCy splits text into words; None splits it at blanks.
        on_bad_utf8: see `bilm.data.shards.Shards`.
    Attributes: `path`; `has_ids`, whether records have ids; `is_text`, whether words are those of a
        language.
    Raises: DataError if an argument is missing or does not fit the form; BilmError if a package is
        missing. Iterating raises DataError, naming file and line or row, for what cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        column: str | None = None,
        id_column: str | None = None,
        id_field: int | None = None,
        tokenize: str | None = None,
        on_bad_utf8: str = "error",
    ):
        self.path = os.path.expanduser(os.fspath(path))
        self._shards = Shards([self.path], on_bad_utf8)
        self._form = Path(self.path.lower().removesuffix(".gz")).suffix
        self._column, self._id_column, self._id_field = column, id_column, id_field
        is_table, is_fasta = self._form in TABLES, self._form in FASTA
        self._check("column", column, is_table, "tables: CSV, TSV, JSONL and Parquet")
        self._check("id_column", id_column, is_table, "tables: CSV, TSV, JSONL and Parquet")
        self._check("id_field", id_field, is_fasta, "FASTA")
        is_split = is_fasta or self._form == ".conllu"
        self._check("tokenize", tokenize, not is_split, "text that is not split into words yet")
        if is_table and column is None:
            raise DataError(
                f"{path}: a table; name the column that holds the text, such as --column=text"
            )
        self._split = tokenizer(tokenize)
        self.has_ids = is_fasta or id_column is not None
        self.is_text = not is_fasta

    def __iter__(self) -> Iterator[Record]:
        if self._form in TABLES:
            cells = Cells(self._column, self._id_column)
            decoding = DECODING[self._shards.on_bad_utf8]
            return self._of_rows(TABLES[self._form](self.path, cells, decoding))
        if self._form in FASTA:
            return _read_fasta(self.path, self._shards.lines(), self._id_field)
        if self._form == ".conllu":
            return map(Record, _read_conllu(self.path, self._shards.lines()))
        return (Record(self._split(line)) for *_, line in self._shards.lines())

    def _of_rows(self, rows: Iterable[tuple[str | None, str | list[str]]]) -> Iterator[Record]:
        for id_, text in rows:
            words = self._split(text) if isinstance(text, str) else text
            yield Record(words, None if id_ is None else checked_id(id_, self.path))

    def _check(self, name: str, value: object, fits: bool, forms: str) -> None:
        if value is not None and not fits:
            raise DataError(
                f"{self.path}: --{name} is for {forms}; the name of the file says its form"
            )


def read_corpus(corpus: str | os.PathLike) -> Iterator[list[str]]:
    """Yield the words of each sentence of a file: see `Corpus`, which reads tables too."""
    return (record.words for record in Corpus(corpus))


def checked_id(id_: str, where: str) -> str:
    """Return an id. Raises: DataError if it is empty or too long."""
    if not 0 < len(id_) <= MAX_ID:
        raise DataError(f"{where}: an id of {len(id_):,} characters, expected 1 to {MAX_ID:,}")
    return id_


def _read_conllu(path: str, lines: Iterator[tuple]) -> Iterator[list[str]]:
    words: list[str] = []
    for number, _, _, line in lines:
        if not line and words:
            yield words
            words = []
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) < 2 or not columns[0].replace("-", "").replace(".", "").isdecimal():
            raise DataError(
                f"{path}, line {number}: {line[:40]!r}; expected the columns of CoNLL-U, "
                "ID and FORM first, with tabs between them"
            )
        if columns[0].isdecimal():
            words.append(columns[1])
    if words:
        yield words


def _read_fasta(path: str, lines: Iterator[tuple], id_field: int | None) -> Iterator[Record]:
    id_, start, parts = None, 0, []
    for number, _, _, line in lines:
        if line.startswith(">"):
            if id_ is not None:
                yield _protein(id_, parts, f"{path}, line {start}")
            id_, start, parts = _fasta_id(line, id_field, f"{path}, line {number}"), number, []
        elif id_ is None and line and not line.startswith(";"):
            raise DataError(
                f"{path}, line {number}: {line[:40]!r}; expected > and an id, as FASTA starts; "
                "text needs another name"
            )
        elif line and not line.startswith(";"):
            letters = line.replace(" ", "").upper()
            if not (letters.isascii() and letters.removesuffix("*").isalpha()) and letters != "*":
                raise DataError(
                    f"{path}, line {number}: {line[:40]!r}; expected the letters of residues, "
                    "without gaps"
                )
            parts.append(letters)
    if id_ is not None:
        yield _protein(id_, parts, f"{path}, line {start}")


def _protein(id_: str, parts: list[str], where: str) -> Record:
    residues = "".join(parts).removesuffix("*")
    if not residues or "*" in residues:
        found = "a * inside" if residues else "no residues"
        raise DataError(f"{where}: {id_} has {found}; expected letters, and * at the end only")
    return Record(list(residues), id_)


def _fasta_id(header: str, field: int | None, where: str) -> str:
    """Return the id of a header: its first word, or one of the fields between | and blanks."""
    text = header[1:]
    fields = text.split()[:1] if field is None else re.split(r"[|\s]+", text.strip())
    place = field or 0
    if place >= len(fields) or not fields[place]:
        raise DataError(f"{where}: {header[:40]!r} has no id in field {place}")
    return checked_id(fields[place], where)
