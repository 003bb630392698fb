"""Streams the sentences of a training text in random order, resumable from a saved position. The
*reference* of a sentence is an integer: the number of its shard times `SHARD_BYTES` plus the byte
position at which its line starts in the uncompressed file."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice, zip_longest

import numpy as np

from bilm.data.shards import Shards
from bilm.data.text import lines_at, placed_lines
from bilm.errors import DataError
from bilm.support.files import version_of
from bilm.support.remote import stats
from bilm.support.urls import is_url, name_of

SHARD_BYTES = 1 << 44  # larger than any shard
END_BYTES = 1 << 20  # of the parts of a file that are compared
SKIPPED_AT_ONCE = 1 << 20  # random numbers skipped at a time, which bounds memory
BLOCK = 1 << 10  # random numbers drawn at a time

Position = dict[str, np.ndarray]  # integer arrays by name


class SentenceStream:
    """The sentences of some shards, epoch after epoch, in random order, from a position on.
    `buffer_size`: number of lines in memory for shuffling; 0 disables it. `key`: of the random
    order, the seed and the number of the direction."""

    def __init__(
        self, shards: Shards, buffer_size: int, key: tuple[int, int], position: Position | None
    ):
        self.shards = shards
        self.buffer_size = buffer_size
        self.key = key
        if position is None:
            position = {"reader": np.zeros(6, np.int64), "buffer": np.zeros(0, np.int64)}
        counters = position["reader"].tolist()
        # The epoch; the number of shards read in it; byte and line reached in the next shard.
        self.epoch, self.shard, self.offset, self.line = counters[:4]
        # Sentences drawn while reading; sentences drained from the buffer after that.
        self.n_drawn, self.n_drained = counters[4:6]
        # If a line is cut into pieces, its reference and the first prediction not yet read.
        self.rest: tuple[int, ...] = tuple(counters[6:])
        self.waiting = position["buffer"].copy()  # references of the lines in the buffer

    def position(self) -> Position:
        """Return the position after the last sentence that was yielded."""
        counters = [self.epoch, self.shard, self.offset, self.line, self.n_drawn, self.n_drained]
        reader: np.ndarray = np.array([*counters, *self.rest], np.int64)
        return {"reader": reader, "buffer": self.waiting.copy()}

    def read_epoch(self) -> Iterator[tuple[int, str]]:
        """Yield reference and text of each remaining sentence of the epoch. Raises: DataError."""
        if self.rest:
            reference = self.rest[0]
            (text,) = read_references(self.shards, np.array([reference]))
            yield reference, text
        if self.buffer_size:
            yield from self._shuffled()
            return
        for line in self._lines(range(len(self.shards.paths))):
            self.n_drawn += 1
            yield line

    def _shuffled(self) -> Iterator[tuple[int, str]]:
        order, rng = self._random()
        lines = self._lines(order)

        # Fill the buffer with the lines of the position, or with the first lines.
        if self.waiting.size:
            texts = read_references(self.shards, self.waiting)
        else:
            filled = list(islice(lines, self.buffer_size))
            self.waiting = np.array([reference for reference, _ in filled], np.int64)
            texts = [text for _, text in filled]

        # Each line that is read takes the place of a random line of the buffer.
        for (reference, text), i in zip(lines, self._places(rng), strict=False):
            drawn = int(self.waiting[i]), texts[i]
            self.waiting[i] = reference
            texts[i] = text
            self.n_drawn += 1
            yield drawn

        # At the end of the text, the buffer is drained. The blocks of places contain more numbers
        # than lines were read, so that the random numbers are skipped again.
        _, rng = self._random()
        for i in rng.permutation(len(texts))[self.n_drained :]:
            self.n_drained += 1
            yield int(self.waiting[i]), texts[i]

    def _random(self) -> tuple[np.ndarray, np.random.Generator]:
        """Return the order of the shards in this epoch, and the random numbers that follow those
        drawn before the position."""
        seed, direction = self.key
        keys = np.random.SeedSequence((seed, self.epoch, direction))
        rng = np.random.Generator(np.random.Philox(keys))
        order = rng.permutation(len(self.shards.paths))
        for first in range(0, self.n_drawn, SKIPPED_AT_ONCE):
            rng.integers(self.buffer_size, size=min(SKIPPED_AT_ONCE, self.n_drawn - first))
        return order, rng

    def _places(self, rng: np.random.Generator) -> Iterator[int]:
        """Yield random places of the buffer without end. They are drawn in blocks, which is ten
        times as fast as one by one, with the same result."""
        while True:
            yield from rng.integers(self.buffer_size, size=BLOCK).tolist()

    def next_epoch(self) -> bool:
        """Move to the next epoch; return whether the finished one had any sentences."""
        had_text = self.n_drawn + self.n_drained > 0
        self.epoch += 1
        self.shard = self.offset = self.line = self.n_drawn = self.n_drained = 0
        self.waiting = np.zeros(0, np.int64)
        return had_text

    def _lines(self, order: Sequence[int] | np.ndarray) -> Iterator[tuple[int, str]]:
        """Yield reference and text of each line that is not read yet, in an order of the shards."""
        shards = self.shards
        while self.shard < len(order):
            shard = int(order[self.shard])
            lines = placed_lines(shards.paths[shard], shards.on_bad_utf8, self.offset, self.line)
            for number, start, end, text in lines:
                self.offset = end
                self.line = number
                text = text.strip()
                if text and not (shards.left_out and shards.leaves_out(text.split())):
                    yield shard * SHARD_BYTES + start, text
            self.shard += 1
            self.offset = self.line = 0


def read_references(shards: Shards, references: np.ndarray) -> list[str]:
    """Return the texts of sentences. Raises: DataError if there is none at a reference."""
    distinct, places = np.unique(references, return_inverse=True)
    texts: list[str] = []
    for shard, group in groupby(distinct.tolist(), lambda reference: reference // SHARD_BYTES):
        offsets = (reference % SHARD_BYTES for reference in group)
        for text in lines_at(shards.paths[shard], shards.on_bad_utf8, offsets):
            if not text:
                raise text_changed(shards, int(distinct[len(texts)]))
            texts.append(text)
    return [texts[place] for place in places.tolist()]


def text_changed(shards: Shards, reference: int) -> DataError:
    """Return the error for a text that does not contain the sentence of a reference."""
    shard, offset = divmod(reference, SHARD_BYTES)
    return DataError(
        f"{shards.paths[shard]}: has changed since the checkpoint was saved: at byte {offset:,} is "
        "another line; restore the file or use another folder"
    )


def describe_shards(paths: Sequence[str]) -> list[str]:
    """Return the name and size of each shard and a digest of its first and last `END_BYTES`, of a
    URL the version, to compare at a resume. Raises: OSError, RemoteError if one is missing."""
    # Change these texts only as `same_shards` allows: checkpoints contain them.
    if not any(map(is_url, paths)):
        return [_described(path, version_of(path)) for path in paths]
    return [
        f"{name_of(url)}, {size} bytes, {version or 'no version'}"
        for url, (size, version) in zip(paths, stats(paths), strict=True)
    ]


@cache
def _described(path: str, version: tuple[int, ...]) -> str:
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        ends = file.read(END_BYTES)
        file.seek(max(len(ends), size - END_BYTES))
        ends += file.read(END_BYTES)
    digest = hashlib.sha256(ends).hexdigest()[:16]
    return f"{os.path.basename(path)}, {size} bytes, SHA-256 of the ends {digest}"


def same_shards(here: Sequence[str], there: Sequence[str]) -> bool:
    """Return whether descriptions fit the same shards; `there` may lack digests, as in 0.2.0."""
    pairs = zip_longest(here, there, fillvalue="no file")
    return all(now == before or now.startswith(f"{before}, ") for now, before in pairs)


def check_shards(paths: Sequence[str], expected: Sequence[str]) -> None:
    """Raise DataError, naming the first shard, if a text differs from its stored description."""
    for here, there in zip_longest(describe_shards(paths), expected, fillvalue="no file"):
        if not same_shards([here], [there]):
            raise DataError(
                f"found {here}, but the run in this folder was trained on {there}; restore the "
                "file or use another folder"
            )
