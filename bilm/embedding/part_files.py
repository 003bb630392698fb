"""The parts of an output: HDF5 with a dataset per sentence, or one array of all vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.data.records import Record
from bilm.embedding.collecting import Layers, layer_selector, unit_length
from bilm.embedding.embedding_file import ID, PLACE, SENTENCE, join_words
from bilm.embedding.parts import damaged
from bilm.files import replacing
from bilm.storage.hdf5 import NewHDF5

if TYPE_CHECKING:  # merging parts does not wait for TensorFlow
    from bilm.embedding.embedder import ElmoEmbedder

PART_TOKENS = 1 << 18  # of a part, if its sentences are long; as many as are packed together


class Wanted(NamedTuple):
    """What is stored of each sentence; see `dump_bilm_embeddings` for the values."""

    layers: Layers = "all"
    pool: str = "none"
    normalize: bool = False
    dtype: str = "float32"

    @property
    def pooled(self) -> bool:
        """Whether a sentence has one vector."""
        return self.pool != "none"

    def row_shape(self, n_layers: int, dim: int) -> tuple[int, ...]:
        """Return the shape of what a word, or a pooled sentence, gets: (D,) or (layers, D)."""
        *before, _, dim = layer_selector(self.layers, n_layers)(np.empty((n_layers, 0, dim))).shape
        return (*before, dim)

    def n_rows(self, record: Record) -> int:
        """Return how many rows a sentence has: one if pooled, otherwise as many as words."""
        return 1 if self.pooled else len(record.words)

    def embed(
        self, embedder: ElmoEmbedder, records: Sequence[Record]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each sentence and its vectors as they are stored, when done."""
        sentences = (record.words for record in records)
        with closing(embedder.embed_as_completed(sentences, self.layers, self.pool)) as embedded:
            for number, _, vectors in embedded:
                vectors = unit_length(vectors) if self.normalize else vectors
                yield number, vectors.astype(self.dtype, copy=False)


def in_parts(records: Iterable[Record], max_sentences: int) -> Iterator[list[Record]]:
    """Yield records in parts: of so many sentences, or about `PART_TOKENS` tokens."""
    part: list[Record] = []
    n_tokens = 0
    for record in records:
        part.append(record)
        n_tokens += len(record.words) + 2
        if len(part) >= max_sentences or n_tokens >= PART_TOKENS:
            yield part
            part, n_tokens = [], 0
    if part:
        yield part


WritePart = Callable[[Path, int, Sequence[Record], "ElmoEmbedder", Wanted], Iterator[Record]]


def write_datasets(
    path: Path, first: int, records: Sequence[Record], embedder: ElmoEmbedder, wanted: Wanted
) -> Iterator[Record]:
    """Write sentences into one HDF5 file, a dataset each, the first named `first`.

    Yields: each record when it is written.
    """
    with (
        replacing(path) as temporary,
        NewHDF5(temporary) as file,
        closing(wanted.embed(embedder, records)) as embedded,
    ):
        for number, vectors in embedded:
            record = records[number]
            attributes = file.create_dataset(str(first + number), data=vectors).attrs
            attributes[SENTENCE] = join_words(record.words)
            if record.id is not None:
                attributes[ID], attributes[PLACE] = record.id, first + number
            file.check()
            yield record


def write_rows(
    path: Path, first: int, records: Sequence[Record], embedder: ElmoEmbedder, wanted: Wanted
) -> Iterator[Record]:
    """Write sentences into one file of numbers, (rows, ...): vectors of words, or one of each.

    Yields: each record when it is written.
    """
    del first
    row_bytes = bytes_of_row(wanted.row_shape(embedder.n_layers, embedder.dim), wanted.dtype)
    starts = list(accumulate(map(wanted.n_rows, records), initial=0))
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as file,
        closing(wanted.embed(embedder, records)) as embedded,
    ):
        for number, vectors in embedded:
            if not wanted.pooled and vectors.ndim == 3:
                vectors = vectors.swapaxes(0, 1)  # layers, T, D -> T, layers, D
            file.seek(starts[number] * row_bytes)
            file.write(vectors.tobytes())
            yield records[number]


def bytes_of_row(shape: tuple[int, ...], dtype: str) -> int:
    """Return the bytes of what a word, or a pooled sentence, gets."""
    return math.prod(shape) * np.dtype(dtype).itemsize


def read_rows(part: Path, n_rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return what `write_rows` has written, on disk until it is used: (rows, ...).

    Raises: DataError if its size is another.
    """
    found, expected = part.stat().st_size, n_rows * bytes_of_row(shape, dtype)
    if found != expected:
        raise damaged(part, f"{found:,} bytes, expected {expected:,}")
    if not n_rows:  # nothing cannot be mapped
        return np.empty((0, *shape), dtype)
    return np.memmap(part, dtype, "r", shape=(n_rows, *shape))
