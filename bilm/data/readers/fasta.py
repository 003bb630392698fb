"""FASTA: a header line with an id, then the letters of a protein or of DNA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bilm.data.readers.form import Form, InputFile, Record, checked_id
from bilm.data.text import read_lines
from bilm.errors import DataError


def read_fasta(source: InputFile) -> Iterator[Record]:
    """Yield a record per sequence: each residue is a word, in upper case.

    A `*` at the end of a sequence is dropped. The id is the first word of the header or, with
    `id_field`, that field of the header split at `|` and whitespace, counted from 0.

    Raises: DataError, naming file and line, for a header without an id, a sequence without
        residues, or characters other than letters.
    """
    path = source.path
    id_, start, parts = "", 0, list[str]()
    for number, line in read_lines(path, source.errors):
        if line.startswith(">"):
            if id_:
                yield _sequence(id_, parts, f"{path}, line {start}")
            id_, start, parts = _id(line, source.id_field, f"{path}, line {number}"), number, []
        elif not line or line.startswith(";"):
            continue
        elif not id_:
            raise DataError(
                f"{path}, line {number}: {line[:40]!r}; expected > and an id at the start of a "
                "FASTA file; rename the file if it contains text"
            )
        else:
            letters = line.replace(" ", "").upper()
            if not (letters.isascii() and letters.removesuffix("*").isalpha()) and letters != "*":
                raise DataError(
                    f"{path}, line {number}: {line[:40]!r}; expected the letters of residues, "
                    "without gaps"
                )
            parts.append(letters)
    if id_:
        yield _sequence(id_, parts, f"{path}, line {start}")


def _sequence(id_: str, parts: list[str], where: str) -> Record:
    residues = "".join(parts).removesuffix("*")
    if not residues or "*" in residues:
        found = "a * inside" if residues else "no residues"
        raise DataError(f"{where}: {id_} has {found}; expected letters, and * only at the end")
    return Record(list(residues), id_)


def _id(header: str, field: int | None, where: str) -> str:
    text = header[1:]
    fields = text.split()[:1] if field is None else re.split(r"[|\s]+", text.strip())
    place = field or 0
    if place >= len(fields) or not fields[place]:
        raise DataError(f"{where}: {header[:40]!r} has no id in field {place}")
    return checked_id(fields[place], where)


FORM = Form(
    name="FASTA",
    endings=(
        *(".fasta", ".fa", ".fas", ".fsa", ".seq"),
        *(".faa", ".mpfa", ".fna", ".ffn", ".frn"),
    ),
    help="proteins or DNA, one letter per word; the id is the first word of the header",
    read=read_fasta,
    options=frozenset({"id_field"}),
    has_ids=True,
    is_text=False,
)
