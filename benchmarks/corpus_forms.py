"""The same sentences in every form that `bilm embed` reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

COLUMN = "text"
FORMS = ("txt", "csv", "tsv", "jsonl", "conllu", "fasta", "parquet")
Sentences = Sequence[Sequence[str]]


def write(form: str, sentences: Sentences, folder: Path) -> tuple[Path, list[str]]:
    """Write sentences in a form; return the file and the flags with which it is read."""
    path = folder / f"corpus.{form}"
    if form == "parquet":
        _write_parquet(path, sentences)
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            WRITERS[form](file, sentences)
    return path, [f"--column={COLUMN}"] if form in ("csv", "tsv", "jsonl", "parquet") else []


def words_read(form: str, sentences: Sentences) -> Sentences:
    """Return the words that are read back: those of the sentences, or of FASTA their letters."""
    return [_residues(words) for words in sentences] if form == "fasta" else sentences


def _residues(words: Iterable[str]) -> list[str]:
    letters = chain.from_iterable("".join(words).upper())
    return [letter for letter in letters if "A" <= letter <= "Z"] or ["X"]


def _write_text(file, sentences: Sentences) -> None:
    file.writelines(" ".join(words) + "\n" for words in sentences)


def _write_csv(file, sentences: Sentences) -> None:
    rows = csv.writer(file)
    rows.writerow(["number", COLUMN])
    rows.writerows([number, " ".join(words)] for number, words in enumerate(sentences))


def _write_tsv(file, sentences: Sentences) -> None:
    file.write(f"number\t{COLUMN}\n")
    file.writelines(f"{number}\t{' '.join(words)}\n" for number, words in enumerate(sentences))


def _write_jsonl(file, sentences: Sentences) -> None:
    for number, words in enumerate(sentences):  # text and lists of words by turns
        value = " ".join(words) if number % 2 else list(words)
        file.write(json.dumps({"number": number, COLUMN: value}) + "\n")


def _write_conllu(file, sentences: Sentences) -> None:
    for number, words in enumerate(sentences):
        file.write(f"# sent_id = {number}\n")
        rest = "\t".join("_" * 8)
        file.writelines(f"{i}\t{word}\t{rest}\n" for i, word in enumerate(words, start=1))
        file.write("\n")


def _write_fasta(file, sentences: Sentences) -> None:
    for number, words in enumerate(sentences):
        letters = "".join(_residues(words))
        lines = (letters[i : i + 60] for i in range(0, len(letters), 60))
        file.write(f">s{number} a sentence\n" + "\n".join(lines) + "\n")


def _write_parquet(path: Path, sentences: Sentences) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {"number": range(len(sentences)), COLUMN: [" ".join(words) for words in sentences]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


WRITERS = {
    "txt": _write_text,
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
    "conllu": _write_conllu,
    "fasta": _write_fasta,
}
