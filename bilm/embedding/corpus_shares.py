"""The files of a corpus, and shares of it, which several processes embed."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import NamedTuple

from bilm.data.profile import Profile, TextSigns
from bilm.data.readers import Corpus, Reading, Record
from bilm.data.text import input_files
from bilm.errors import DataError, OptionsError
from bilm.support.progress import Progress

MAX_SHARES = 100_000


class Share(NamedTuple):
    """One of `n` shares of a corpus of nearly equal size, in order: its `number`, from 0."""

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


class Corpora:
    """The records of all files that a pattern matches, or a share: see `Corpus` and `TextSigns`.

    Attributes: `path`, the name of the whole, for messages; `has_ids`.
    Raises: DataError as `input_files` and `Corpus` do, and if only some files have ids.
    """

    def __init__(
        self,
        pattern: str | os.PathLike,
        reading: Reading | None = None,
        share: Share | None = None,
        vocabulary: Container[str] = (),
        of_model: Profile | None = None,
    ):
        signs = TextSigns(pattern, vocabulary=vocabulary, of_model=of_model)
        self._corpora = [Corpus(path, reading, signs) for path in input_files(pattern)]
        self.path = os.fspath(pattern) if len(self._corpora) > 1 else self._corpora[0].path
        self.has_ids = any(corpus.has_ids for corpus in self._corpora)
        for corpus in self._corpora:
            if corpus.has_ids != self.has_ids:
                raise DataError(
                    f"{corpus.path}: its sentences have no ids, but other files of {self.path} "
                    "have ids; expected files of the same form"
                )

        # A share is a range of the records, which are counted first.
        self._first = 0
        self._end: int | None = None
        if share is not None:
            counted = Progress("counting", "sentences")
            n_records = sum(1 for _ in counted.over(self))
            self._first = n_records * share.number // share.n
            self._end = n_records * (share.number + 1) // share.n
            self.path += f" (share {share.number} of {share.n})"

    def __iter__(self) -> Iterator[Record]:
        return islice(chain.from_iterable(self._corpora), self._first, self._end)
