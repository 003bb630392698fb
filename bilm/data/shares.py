"""Dividing the files of a corpus into shares of nearly equal size, for several processes.

The files are placed end to end, in the order of their names, and the bytes are divided evenly. A
share consists of whole files and of at most two parts of files, in order, so that the records of
all shares in order are the records of the corpus:

- a line of a text file that is not compressed, or of JSON Lines, belongs to the share that
  contains its first byte;
- a row group of a Parquet file belongs to the share that contains its middle;
- other files (CSV, TSV, CoNLL-U, FASTA, compressed files) cannot be sought. If several shares have
  a part of such a file, it is divided by the number of its records, and the process of each of them
  reads the file from its start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from bilm.data.readers import Corpora, Corpus, form_of
from bilm.data.readers.form import BYTES, ROW_GROUPS
from bilm.data.readers.tables import row_groups
from bilm.data.shards import matching_files
from bilm.data.text import require_files
from bilm.errors import DataError
from bilm.support.progress import progress
from bilm.support.remote import stats
from bilm.support.urls import is_url, masked


class Piece(NamedTuple):
    """A file or a part of it.

    Fields:
        path: the file or its URL.
        span: numbers of the first unit and of the one after the last, in the unit of the file's
            form; None for the whole file.
    """

    path: str
    span: tuple[int, int] | None = None


def input_files(pattern: str | os.PathLike) -> list[str]:
    """Return the files or URLs of a corpus: the file of this name, or those that a pattern matches,
    sorted by name. Raises: DataError if there is none or if one is not a regular file."""
    name = os.path.expanduser(os.fspath(pattern))
    paths = [name] if os.path.exists(name) else matching_files(name)
    require_files(paths)
    return paths


def sizes_of(paths: Sequence[str]) -> list[int]:
    """Return the sizes of files or URLs in bytes.

    Raises: DataError if a server does not state the size; OSError.
    """
    urls = [path for path in paths if is_url(path)]
    remote = dict(zip(urls, stats(urls), strict=True))
    sizes = [remote[path].size if is_url(path) else os.path.getsize(path) for path in paths]
    found = [size for size in sizes if size is not None]
    if len(found) < len(sizes):
        unknown = paths[sizes.index(None)]
        raise DataError(
            f"{masked(unknown)}: the server does not state the size of the file, so it cannot be "
            "shared by several processes; download it"
        )
    return found


def divide(
    paths: Sequence[str], n: int, count: Callable[[str], int], only: int | None = None
) -> list[list[Piece]]:
    """Divide files into `n` shares, each a list of pieces in order; see the module.

    Args:
        paths: the files or URLs, in order.
        n: number of shares.
        count: returns the number of records of a file.
        only: number of the share to return; the others are then empty lists, and only files of
            which this share has a part are opened. None for all shares.
    """
    sizes = sizes_of(paths)
    bounds = [sum(sizes) * i // n for i in range(n + 1)]
    shares: list[list[Piece]] = [[] for _ in range(n)]
    start = 0
    for path, size in zip(paths, sizes, strict=True):
        parts = [
            (i, max(low, start) - start, min(high, start + size) - start)
            for i, (low, high) in enumerate(pairwise(bounds))
            if low < start + size and high > start and high > low
        ]
        start += size
        if only is not None and only not in [i for i, *_ in parts]:
            continue
        if len(parts) == 1:
            shares[parts[0][0]].append(Piece(path))
            continue
        unit_at = _units(path, size, count)
        for i, low, high in parts:
            span = unit_at(low), unit_at(high)
            if span[0] < span[1] and only in (None, i):
                shares[i].append(Piece(path, span))
    return shares


def _units(path: str, size: int, count: Callable[[str], int]) -> Callable[[int], int]:
    """Return the function that returns the first unit of a file that belongs to the share that
    starts at a byte position."""
    unit = form_of(path).unit(path)
    if unit == BYTES:
        return lambda position: position
    if unit == ROW_GROUPS:
        ends = list(accumulate(row_groups(path), initial=0))
        middles = [(a + b) / 2 * size / max(ends[-1], 1) for a, b in pairwise(ends)]
        return lambda position: sum(middle < position for middle in middles)
    n_records = count(path)
    return lambda position: -(-position * n_records // size)


def open_corpus(pattern: str | os.PathLike, **reading: Any) -> Corpus | Corpora:
    """Return the records of a file, or of all files that a pattern matches.

    Args:
        pattern: name, URL or pattern.
        reading: further arguments of `Corpus`.
    Raises: DataError as `input_files`, `Corpus` and `Corpora` do.
    """
    paths = input_files(pattern)
    if len(paths) == 1:
        return Corpus(paths[0], **reading)
    return Corpora(os.fspath(pattern), [Corpus(path, **reading) for path in paths])


def open_share(
    pattern: str | os.PathLike, index: int, n: int, **reading: Any
) -> tuple[list[str], Corpora]:
    """Return all files of a corpus, and the records of one of `n` shares.

    Args:
        pattern: name, URL or pattern.
        index: number of the share, from 0.
        n: number of shares.
        reading: further arguments of `Corpus`.
    Raises: DataError as `open_corpus` does, and as reading the corpus does.
    """
    paths = input_files(pattern)
    whole = Corpora(os.fspath(pattern), [Corpus(path, **reading) for path in paths])  # checks
    pieces = divide(paths, n, counter(**reading), index)[index]
    name = f"{os.fspath(pattern)} (share {index} of {n})"
    share = Corpora(name, [Corpus(path, **reading, span=span) for path, span in pieces])
    share.has_ids, share.is_text = whole.has_ids, whole.is_text  # also if the share is empty
    return paths, share


def counter(**reading: Any) -> Callable[[str], int]:
    """Return the function that counts the records of a file, read as by `Corpus`."""

    def count(path: str) -> int:
        n_records = 0
        with progress("counting", "sentences") as shown:
            for _ in Corpus(path, **reading):
                n_records += 1
                shown.add(1)
        return n_records

    return count
