"""Runs a biLM over many sentences, packed into rows, and computes one window of steps ahead."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
from keras import ops

from bilm.embedding.collecting import Collector
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.state import TableRows

MAX_ROWS = 192  # more rows hardly speed up products, and their steps no longer fit the cache
REPEATS = 8  # multiply the table instead of each token from this mean number of uses per row on
T = TypeVar("T")


class Packing(NamedTuple):
    """The place of each sentence in a grid of rows and steps: `rows`, `starts`, integer (n,)."""

    rows: np.ndarray
    starts: np.ndarray
    n_rows: int
    n_steps: int


def pack(lengths: np.ndarray, max_rows: int = MAX_ROWS) -> Packing:
    """Assign sentences to rows, the longest first, each to the row that ends earliest.

    The number of rows is the total length divided by the longest length, at most `max_rows`; above
    8, it is rounded up to a multiple of 8. The ends of rows differ by at most that length (R. L.
    Graham 1969, Bounds on
    multiprocessing timing anomalies).

    Args:
        lengths: steps of each sentence, integer (n,), with n and all lengths above 0.
        max_rows: maximum number of rows.
    """
    n_rows = int(np.clip(lengths.sum() // lengths.max(), 1, max_rows))
    n_rows = min(n_rows + -n_rows % 8, max_rows, len(lengths)) if n_rows > 8 else n_rows
    ends = [(0, row) for row in range(n_rows)]
    rows: np.ndarray = np.empty(len(lengths), np.int64)
    starts: np.ndarray = np.empty(len(lengths), np.int64)
    for i in np.argsort(-lengths, kind="stable"):
        starts[i], rows[i] = ends[0]
        heapq.heapreplace(ends, (int(starts[i] + lengths[i]), int(rows[i])))
    return Packing(rows, starts, n_rows, max(ends)[0])


def ahead(values: Iterator[T]) -> Generator[T, None, None]:
    """Yield the values of an iterator, computing the next one while the caller uses the last.

    The iterator runs in a separate thread; TensorFlow's and NumPy's operations release the
    interpreter lock. At most one value is waiting. Errors of the iterator are raised here. Closing
    waits for the value that is being computed.
    """

    def following() -> list[T]:
        return list(islice(values, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        future = thread.submit(following)
        while found := future.result():
            future = thread.submit(following)
            yield found[0]


class PackedRunner:
    """Runs a biLM over token vectors of sentences, each from zero state.

    Args:
        model: the biLM, with its weights.
        batch_tokens: maximum number of tokens in a window of steps.
    """

    def __init__(self, model: BiLM, batch_tokens: int):
        self.model, self.options, self.batch_tokens = model, model.options, batch_tokens
        self.n_layers = self.options.lstm.n_layers + 1
        self.dim = len(model.directions) * self.options.lstm.projection_dim
        signature = self._signature()
        self._run_steps = compiled(self._steps, signature)
        self._run_rows = compiled(partial(self._steps, as_rows=True), signature)

    def __call__(
        self, table: np.ndarray, sentences: list[np.ndarray], select: Callable, collect: Callable
    ) -> Generator[tuple[int, np.ndarray], None, None]:
        """Run over sentences with their marks, given as rows of a table of token vectors.

        Yields the number of each sentence and its collected result, without its marks, as soon as
        its last step is computed. A direction stops at the last word that it reads, because no
        result depends on the mark after it.

        Args:
            table: token vectors, float32 (U, P).
            sentences: rows of the table, integer (T + 2,).
            select: selects from layers, float32 (layers + 1, ..., D).
            collect: makes the `Collector` of a sentence from its number of words.
        """
        lengths = np.array([len(rows) - 1 for rows in sentences])
        packing = pack(lengths)
        places, fresh = self._lay_out(sentences, packing)
        waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
        running: dict[int, Collector] = {}
        windows = self._windows(table, places, fresh)
        if fresh.size > self.batch_tokens and keras.backend.backend() == "tensorflow":
            # The caller collects and writes while the next steps are computed. Other backends have
            # settings that depend on the thread.
            windows = ahead(windows)
        with closing(windows):
            for steps, found in windows:
                selected = {d: select(ops.convert_to_numpy(layers)) for d, layers in found.items()}
                while waiting and packing.starts[waiting[-1]] < steps.stop:
                    k = waiting.pop()
                    running[k] = collect(int(lengths[k]) - 1)
                for k, collector in list(running.items()):
                    # The sentence's step at the window's start.
                    at = steps.start - int(packing.starts[k])
                    own = {d: s[..., packing.rows[k], :, :] for d, s in selected.items()}
                    _add(collector, own, at, int(lengths[k]) - 1)
                    if packing.starts[k] + lengths[k] <= steps.stop:
                        yield k, running.pop(k).result()

    def _windows(
        self, table: np.ndarray, places: dict[str, np.ndarray], fresh: np.ndarray
    ) -> Generator[tuple[slice, dict[str, Any]], None, None]:
        """Yield the steps of each window, and its layers by direction: (layers + 1, B, T, P)."""
        n_rows, n_all = fresh.shape
        state = self.model.flatten_state(self.model.zero_state(n_rows))
        tensor = ops.convert_to_tensor(table)
        n_steps = max(self.batch_tokens // n_rows, 1)
        repeats = n_rows * min(n_steps, n_all) / len(table)
        run = self._run_rows if repeats >= REPEATS else self._run_steps
        for start in range(0, n_all, n_steps):
            steps = slice(start, min(start + n_steps, n_all))
            window = {d: ops.convert_to_tensor(p[:, steps]) for d, p in places.items()}
            found, state = run(tensor, window, ops.convert_to_tensor(fresh[:, steps]), state)
            yield steps, found

    def _lay_out(
        self, sentences: list[np.ndarray], packing: Packing
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return each direction's rows of the table, integer (B, T), in its reading order, and the
        starts of sentences, boolean (B, T)."""
        shape = packing.n_rows, packing.n_steps
        places: dict[str, np.ndarray] = {
            d: np.zeros(shape, np.int32) for d in self.model.directions
        }
        fresh: np.ndarray = np.zeros(shape, bool)
        for rows, row, start in zip(sentences, packing.rows, packing.starts, strict=True):
            fresh[row, start] = True
            for direction in self.model.directions:
                in_order = rows[:0:-1] if direction == "backward" else rows[:-1]
                places[direction][row, start : start + len(in_order)] = in_order
        return places, fresh

    def _steps(self, table, places, fresh, state, as_rows=False):
        """Continue from a state: integer (B, T) by direction -> float (layers + 1, B, T, P).

        `as_rows` multiplies the table with the first layers' weights, instead of each token.
        """
        vectors = {d: ops.take(table, places[d], axis=0) for d in self.model.directions}
        read = {d: TableRows(table, p) for d, p in places.items()} if as_rows else vectors
        outputs, state = self.model.windows(read, self.model.pack_state(state), fresh=fresh)
        layers = {d: ops.stack([vectors[d], *outputs[d]]) for d in self.model.directions}
        return layers, self.model.flatten_state(state)

    def _signature(self) -> list:
        places = {d: keras.KerasTensor((None, None), "int32") for d in self.model.directions}
        state = self.model.flatten_state(self.model.zero_state(0))
        return [
            keras.KerasTensor((None, self.options.lstm.projection_dim), "float32"),
            places,
            keras.KerasTensor((None, None), "bool"),
            [keras.KerasTensor((None, part.shape[1]), "float32") for part in state],
        ]


def _add(collector: Collector, found: dict[str, np.ndarray], at: int, n_words: int) -> None:
    """Add a sentence's part of a window, (..., T, P) by direction, to its collector.

    `at` is the sentence's step at the start of the window; the begin mark is step 0. It is negative
    if the sentence starts inside the window.
    """
    n_steps, dim = next(iter(found.values())).shape[-2:]
    first, stop = max(at, 1), min(at + n_steps, n_words + 1)
    if first >= stop:
        return
    for i, (direction, vectors) in enumerate(found.items()):
        vectors = vectors[..., first - at : stop - at, :]
        words = slice(first - 1, stop - 1)
        if direction == "backward":
            vectors, words = vectors[..., ::-1, :], slice(n_words - stop + 1, n_words - first + 1)
        collector.add(vectors, words, slice(i * dim, (i + 1) * dim))
