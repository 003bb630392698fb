"""Runs a biLM over sentences and collects or pools the vectors of their words."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import numpy as np

from bilm.embedding.selection import Selection
from bilm.inference.backend import Backend
from bilm.inference.packing import in_reading_order, pack, run_windows


def collected(
    backend: Backend,
    table: np.ndarray,
    sentences: list[np.ndarray],
    selection: Selection,
    batch_tokens: int,
) -> Generator[tuple[int, np.ndarray], None, None]:
    """Yield the number and the collected vectors of each sentence when its last step is computed.

    A direction stops at the last word that it reads, because no result depends on the mark after
    it.

    Args:
        backend: computes the layers.
        table: token vectors, float32 (U, P).
        sentences: words with their marks, rows of the table, integer (T + 2,).
        selection: what to select from the layers.
        batch_tokens: tokens that are computed at a time.
    """
    if not sentences:
        return
    lengths = np.array([len(rows) - 1 for rows in sentences])
    packing = pack(lengths)
    places = {
        d: packing.grid((in_reading_order(rows, d)[:-1] for rows in sentences), np.int32)
        for d in backend.options.directions
    }
    waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
    running: dict[int, Collector] = {}
    with closing(run_windows(backend, table, places, packing.is_start(), batch_tokens)) as windows:
        for steps, layers in windows:
            selected = {d: selection.select(np.asarray(x)) for d, x in layers.items()}

            # The sentences that start in this window
            while waiting and packing.starts[waiting[-1]] < steps.stop:
                k = waiting.pop()
                running[k] = Collector(selection, int(lengths[k]) - 1)

            for k, collector in list(running.items()):
                row, start = packing.rows[k], int(packing.starts[k])
                vectors = {d: x[..., row, :, :] for d, x in selected.items()}  # ..., T, P
                collector.add(vectors, steps.start - start)
                if start + lengths[k] <= steps.stop:
                    yield k, running.pop(k).result()


class Collector:
    """Collects or pools the vectors of a sentence of `n_words` words from windows of steps."""

    def __init__(self, selection: Selection, n_words: int):
        self._pool, self._normalize = selection.pool, selection.normalize
        self._n_words = n_words
        *layers, dim = selection.shape
        self._vectors: np.ndarray
        if self._pool == "none":
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
        first, stop = max(at, 1), min(at + n_steps, self._n_words + 1)
        if first >= stop:
            return
        for i, (direction, vectors) in enumerate(window.items()):
            vectors = vectors[..., first - at : stop - at, :]
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
