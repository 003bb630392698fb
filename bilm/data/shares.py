"""The files of a corpus, and shares of nearly equal size for several processes.

The files are placed end to end, in the order of their names, and the bytes are divided evenly. The
records of all shares, in order, are the records of the corpus:

- a line of a text or JSON Lines file that is not compressed belongs to the share that contains its
  first byte;
- other files cannot be sought. If several shares have a part of such a file, it is divided by the
  number of its records, and each process reads the file from its start.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from bilm.data.readers import Corpora, Corpus, form_of
from bilm.data.readers.form import BYTES
from bilm.data.shards import matching_files
from bilm.data.text import require_files
from bilm.errors import DataError, OptionsError
from bilm.support.remote import stat
from bilm.support.urls import is_url, masked

MAX_SHARES = 100_000


class Share(NamedTuple):
    """One of `n` shares of a corpus: its `number`, from 0, and `n`."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that "number/n" describes, such as "0/4". Raises: OptionsError."""
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not int(match[1]) < int(match[2]) <= MAX_SHARES:
            raise OptionsError(
                f"--shard {text}: expected i/n with the number i of the share, from 0 to n - 1, "
                "and the number n of shares, such as 0/4"
            )
        return cls(int(match[1]), int(match[2]))

    def file_name(self, output: str) -> str:
        """Return the name of this share's output: vectors-00000-of-00004.npz for vectors.npz."""
        ending = PurePosixPath(output).suffix
        return f"{output.removesuffix(ending)}-{self.number:05}-of-{self.n:05}{ending}"


def input_files(pattern: str | os.PathLike) -> list[str]:
    """Return the files or URLs of a corpus: the file of this name, or those that a pattern matches,
    sorted by name. Raises: DataError if there is none or if one is not a regular file."""
    name = os.path.expanduser(os.fspath(pattern))
    paths = [name] if os.path.exists(name) else matching_files(name)
    require_files(paths)
    return paths


def open_corpus(
    pattern: str | os.PathLike, share: Share | None = None, **reading: Any
) -> Corpus | Corpora:
    """Return the records of a file or of all files that a pattern matches, or a share of them.

    Args:
        pattern: name, URL or pattern.
        share: the share; None for all records.
        reading: further arguments of `Corpus`.
    Raises: DataError as `input_files`, `Corpus` and `Corpora` do.
    """
    paths = input_files(pattern)
    if len(paths) == 1 and share is None:
        return Corpus(paths[0], **reading)
    whole = Corpora(os.fspath(pattern), [Corpus(path, **reading) for path in paths])
    if share is None:
        return whole
    parts = [Corpus(path, **reading, span=span) for path, span in _parts(paths, share, reading)]
    found = Corpora(f"{os.fspath(pattern)} (share {share.number} of {share.n})", parts)
    found.has_ids, found.is_text = whole.has_ids, whole.is_text  # also if the share is empty
    return found


def _parts(
    paths: list[str], share: Share, reading: dict[str, Any]
) -> list[tuple[str, tuple[int, int] | None]]:
    """Return the files of a share, each with the span of `Corpus` that belongs to it."""
    sizes = [_size(path) for path in paths]
    low, high = (sum(sizes) * i // share.n for i in (share.number, share.number + 1))
    found: list[tuple[str, tuple[int, int] | None]] = []
    start = 0
    for path, size in zip(paths, sizes, strict=True):
        first, last = max(low - start, 0), min(high - start, size)
        start += size
        if first >= last:
            continue
        if last - first == size:
            found.append((path, None))
        elif form_of(path).unit(path) == BYTES:
            found.append((path, (first, last)))
        else:
            n_records = sum(1 for _ in Corpus(path, **reading))
            found.append((path, (-(-first * n_records // size), -(-last * n_records // size))))
    return found


def _size(path: str) -> int:
    """Return the size of a file or URL in bytes. Raises: DataError if the server hides it."""
    size = stat(path).size if is_url(path) else os.path.getsize(path)
    if size is None:
        raise DataError(
            f"{masked(path)}: the server does not state the size of the file, so it cannot be "
            "divided; download it"
        )
    return size
