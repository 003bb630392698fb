"""The lexicons of ELMoForManyLangs: a word or character and its id per line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import DataError

MAX_BYTES = 256 << 20  # a million words have some 15 MB
IDEOGRAPHIC_SPACE = "\u3000"  # what an empty key stands for: stripping has taken it away
ID = re.compile(r"[0-9]{1,10}")


def read_lexicon(path: Path, n_rows: int, marks: Sequence[str]) -> dict[str, int]:
    """Read a lexicon: `key<TAB>id` per line, UTF-8; of equal keys the last one counts.

    Args:
        n_rows: of the table that the ids are rows of.
        marks: the keys that must be there.
    Raises: DataError, naming the line, for a file that cannot be used.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: more than {MAX_BYTES:,} bytes, expected a lexicon")
    lexicon = {}
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    for number, line in enumerate(lines, 1):
        key, tab, id_ = line.rpartition(b"\t")
        where = f"{path}, line {number}"
        try:
            key, id_ = key.decode().strip() or IDEOGRAPHIC_SPACE, id_.decode().strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8") from error
        if not tab or not ID.fullmatch(id_):
            raise DataError(f"{where}: found {line[:40]!r}, expected a key, a tab and an id")
        if int(id_) >= n_rows:
            raise DataError(f"{where}: its id is {int(id_)}, but the table has {n_rows:,} rows")
        lexicon[key] = int(id_)
    missing = [mark for mark in marks if mark not in lexicon]
    if missing:
        raise DataError(f"{path}: {' '.join(missing)} missing, expected on lines of their own")
    return lexicon
