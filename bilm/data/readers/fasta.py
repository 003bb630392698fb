"""FASTA: a header line with an id, then the letters of a protein or of DNA."""

import re
from collections.abc import Iterator

from bilm.data.readers.form import Form, InputFile, Record, checked_id
from bilm.data.text import read_lines
from bilm.errors import DataError


def read_fasta(source: InputFile) -> Iterator[Record]:
    """Yield a record per sequence: each residue is a word, in upper case. A `*` at the end of a
    sequence is dropped. Raises: DataError for a missing id or residue, or another character."""
    id_ = header_place = ""  # of the sequence that is read
    lines: list[str] = []
    for number, line in read_lines(source.path, source.reading.on_bad_utf8):
        where = f"{source.path}, line {number}"
        if line.startswith(">"):
            if id_:
                yield _sequence(id_, lines, header_place)
            id_ = _id(line, source.reading.id_field, where)
            header_place = where
            lines = []
        elif not line or line.startswith(";"):
            continue
        elif not id_:
            raise DataError(
                f"{where}: {line[:40]!r}; expected > and an id at the start of a FASTA file; "
                "rename the file if it contains text"
            )
        else:
            residues = line.replace(" ", "").upper()
            letters = residues.removesuffix("*")
            if residues != "*" and not (letters.isascii() and letters.isalpha()):
                raise DataError(
                    f"{where}: {line[:40]!r}; expected the letters of residues, without gaps"
                )
            lines.append(residues)
    if id_:
        yield _sequence(id_, lines, header_place)


def _sequence(id_: str, lines: list[str], where: str) -> Record:
    residues = "".join(lines).removesuffix("*")
    if not residues or "*" in residues:
        problem = "a * inside" if residues else "no residues"
        expected = "expected letters, * only at the end, and lines that end with \\n"
        raise DataError(f"{where}: {id_} has {problem}; {expected}")
    return Record(list(residues), id_)


def _id(header: str, field: int | None, where: str) -> str:
    """Return the id in a field of a header, or without a field its first word."""
    text = header[1:].strip()
    fields = text.split() if field is None else re.split(r"[|\s]+", text)
    place = field or 0
    if place >= len(fields) or not fields[place]:
        raise DataError(f"{where}: {header[:40]!r} has no id in field {place}")
    return checked_id(fields[place], where)


FORM = Form(
    name="FASTA",
    endings=(".fasta", ".fa", ".fas", ".fsa", ".seq", ".faa", ".mpfa", ".fna", ".ffn", ".frn"),
    help="proteins or DNA, one letter per word; the id is the first word of the header",
    read=read_fasta,
    options={
        "id_field": "Index, from 0, of the part of a FASTA header to use as the id; the header is "
        "split at | and whitespace."
    },
    has_ids=True,
    is_text=False,
)
