"""Runs a biLM over sentences, selects its layers, and collects or pools the vectors of words."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

import numpy as np

from bilm.embedding.choices import POOLS
from bilm.errors import OptionsError
from bilm.inference.backend import Backend
from bilm.inference.packing import in_reading_order, pack, run_windows

Layers = str | Sequence[int]  # see `ElmoEmbedder`
SELECTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "all": lambda array: array,
    "top": lambda array: array[-1],
    "average": lambda array: array.mean(axis=0),
    "sum": lambda array: array.sum(axis=0),
}


class Selection:
    """The layers to select from arrays (n_layers, ..., T, dim), and how to pool a sentence's words:
    see `ElmoEmbedder.embed_sentences`.

    Attributes: `select`, the function that selects them; `numbers` of the selected layers, empty
        for a name such as "top"; `shape` of the vectors of a word or a pooled sentence: (D,), or
        (layers, D).
    Raises: OptionsError for missing layers, an unknown pool, or `normalize` without pooling.
    """

    def __init__(self, layers: Layers, pool: str, normalize: bool, n_layers: int, dim: int):
        if pool not in POOLS:
            raise OptionsError(f"pool is {pool!r}, expected one of {', '.join(POOLS)}")
        if normalize and pool == "none":
            raise OptionsError(
                "normalize requires one vector per sentence: set pool to mean or max"
            )
        self.pool = pool
        self.normalize = normalize
        if isinstance(layers, str) and layers in SELECTIONS:
            self.select = SELECTIONS[layers]
            self.numbers = list(range(n_layers)) if layers == "all" else []
        else:
            self.numbers = _layer_numbers(layers)
            self.select = operator.itemgetter(self.numbers)
            if not self.numbers or not all(0 <= i < n_layers for i in self.numbers):
                raise OptionsError(
                    f"layers is {layers!r}, expected {', '.join(SELECTIONS)} or a list of numbers "
                    f"from 0 to {n_layers - 1}"
                )
        self.shape = (len(self.numbers), dim) if self.numbers else (dim,)


def side_by_side(vectors: np.ndarray) -> np.ndarray:
    """Concatenate the layers of words: (layers, T, D) -> (T, layers * D), or (T, D) unchanged."""
    return vectors if vectors.ndim == 2 else np.concatenate(vectors, axis=1)


def _layer_numbers(layers: Layers) -> list[int]:
    """Return the numbers in `layers`; an empty list if it contains anything else."""
    try:
        if isinstance(layers, str):
            return [int(number) for number in layers.split(",")]
        return [operator.index(number) for number in layers]
    except (TypeError, ValueError):
        return []


def collected(
    backend: Backend,
    table: np.ndarray,
    sentences: list[np.ndarray],
    selection: Selection,
    batch_tokens: int,
) -> Generator[tuple[int, np.ndarray], None, None]:
    """Yield the number and the collected vectors of each sentence when its last step is computed.

    A direction stops at the last word that it reads; no result depends on the mark after it.

    Args:
        table: token vectors, float32 (U, P).
        sentences: words with their marks, rows of the table, integer (T + 2,).
        batch_tokens: tokens that are computed at a time.
    """
    if not sentences:
        return
    lengths = np.array([len(rows) - 1 for rows in sentences])
    packing = pack(lengths)
    places = {}
    for direction in backend.options.directions:
        rows_read = (in_reading_order(rows, direction)[:-1] for rows in sentences)
        places[direction] = packing.grid(rows_read, np.int32)
    waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
    running: dict[int, Collector] = {}
    with closing(run_windows(backend, table, places, packing.is_start(), batch_tokens)) as windows:
        for steps, layers in windows:
            selected = {d: selection.select(np.asarray(x)) for d, x in layers.items()}

            # The sentences that start in this window.
            while waiting and packing.starts[waiting[-1]] < steps.stop:
                k = waiting.pop()
                running[k] = Collector(selection, int(lengths[k]) - 1)

            # The vectors of each sentence in it, and the sentences that end in it.
            for k, collector in list(running.items()):
                row = packing.rows[k]
                start = int(packing.starts[k])
                vectors = {d: x[..., row, :, :] for d, x in selected.items()}  # ..., T, P
                collector.add(vectors, steps.start - start)
                if start + lengths[k] <= steps.stop:
                    yield k, running.pop(k).result()


class Collector:
    """Collects or pools the vectors of a sentence of `n_words` words from windows of steps."""

    def __init__(self, selection: Selection, n_words: int):
        self._pool = selection.pool
        self._normalize = selection.normalize
        self._n_words = n_words
        self._vectors: np.ndarray
        if self._pool == "none":
            *layers, dim = selection.shape
            self._vectors = np.empty((*layers, n_words, dim), np.float32)
        elif self._pool == "mean":
            self._vectors = np.zeros(selection.shape)
        else:
            start = -np.inf if n_words else 0
            self._vectors = np.full(selection.shape, start, np.float32)

    def add(self, window: dict[str, np.ndarray], at: int) -> None:
        """Add the sentence's part of a window, (..., T, P) by direction. `at` is the sentence's
        step at the start of the window, counted from the begin mark; below 0 if it starts later."""
        n_steps, dim = next(iter(window.values())).shape[-2:]
        first = max(at, 1)
        stop = min(at + n_steps, self._n_words + 1)
        if first >= stop:
            return

        for i, direction in enumerate(window):
            vectors = window[direction][..., first - at : stop - at, :]
            features = slice(i * dim, (i + 1) * dim)
            if self._pool == "mean":
                self._vectors[..., features] += vectors.sum(axis=-2, dtype=np.float64)
            elif self._pool == "max":
                largest = self._vectors[..., features]
                np.maximum(largest, vectors.max(axis=-2), out=largest)
            elif direction == "backward":  # its first step reads the last word
                words = slice(self._n_words - stop + 1, self._n_words - first + 1)
                self._vectors[..., words, features] = vectors[..., ::-1, :]
            else:
                self._vectors[..., first - 1 : stop - 1, features] = vectors

    def result(self) -> np.ndarray:
        """Return float32 (..., T, D), or (..., D) if pooled; without words, zeros."""
        vectors = self._vectors
        if self._pool == "mean":
            vectors = (vectors / max(self._n_words, 1)).astype(np.float32)
        if self._normalize:
            vectors = (vectors / (np.linalg.norm(vectors) or 1.0)).astype(np.float32)
        return vectors
