"""The files of a corpus, and shares of nearly equal size for several processes.

The records of all shares, in order, are the records of the corpus. Each process counts the records
of the whole corpus and then reads those of its share.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from bilm.data.readers import Corpora, Corpus
from bilm.data.shards import matching_files
from bilm.data.text import require_files
from bilm.errors import OptionsError
from bilm.support.progress import progress

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
    with progress("counting", "sentences") as shown:
        n_records = sum(1 for _ in shown.over(whole))
    first, last = (n_records * i // share.n for i in (share.number, share.number + 1))
    name = f"{whole.path} (share {share.number} of {share.n})"
    return Corpora(name, [Corpus(path, **reading) for path in paths], (first, last))
