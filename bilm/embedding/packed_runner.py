"""A biLM over many sentences: packed into rows, a window of steps at a time, the next one ahead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from bilm.embedding.collecting import Collector
from bilm.embedding.packing import Packing, pack
from bilm.embedding.prefetch import ahead
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.state import TableRows

REPEATS = 8  # places a distinct token of a window, from which on the table itself is multiplied


class PackedRunner:
    """Runs a biLM over token vectors of sentences, each from zero state.

    Args:
        model: as `load_bilm` gives it.
        batch_tokens: places in a window of steps.
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
    ) -> Any:
        """Run over sentences with their marks, each the rows of a table of token vectors.

        Yields the number of each sentence and what was collected of it, without its marks, as soon
        as its last step is done. A direction stops at the last word that it reads; no result needs
        the mark after it.

        Args:
            table: token vectors, float32 (U, P).
            sentences: rows of the table, integer (T + 2,).
            select: picks of layers, float32 (layers + 1, ..., D), those that are wanted.
            collect: makes the `Collector` of a sentence of so many words.
        """
        lengths = np.array([len(rows) - 1 for rows in sentences])
        packing = pack(lengths)
        places, fresh = self._lay_out(sentences, packing)
        waiting = sorted(range(len(sentences)), key=packing.starts.__getitem__, reverse=True)
        running: dict[int, Collector] = {}
        windows = self._windows(table, places, fresh)
        if fresh.size > self.batch_tokens and keras.backend.backend() == "tensorflow":
            # Collecting and what the caller does, writing for one, go on beside the next steps.
            # Other backends keep settings by thread.
            windows = ahead(windows)
        with closing(windows):
            for steps, found in windows:
                selected = {d: select(ops.convert_to_numpy(layers)) for d, layers in found.items()}
                while waiting and packing.starts[waiting[-1]] < steps.stop:
                    k = waiting.pop()
                    running[k] = collect(int(lengths[k]) - 1)
                for k, collector in list(running.items()):
                    at = steps.start - int(packing.starts[k])  # of its steps, the window's first
                    own = {d: s[..., packing.rows[k], :, :] for d, s in selected.items()}
                    _add(collector, own, at, int(lengths[k]) - 1)
                    if packing.starts[k] + lengths[k] <= steps.stop:
                        yield k, running.pop(k).result()

    def _windows(self, table, places, fresh):
        """Run over all steps in windows of `batch_tokens` places; give which steps, and their
        layers, tensors float (layers + 1, B, T, P) a direction."""
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

    def _lay_out(self, sentences: list[np.ndarray], packing: Packing) -> Any:
        """Return each direction's places in the table, integer (B, T) in the order it reads in,
        and where sentences start, boolean (B, T)."""
        shape = packing.n_rows, packing.n_steps
        places = {d: np.zeros(shape, np.int32) for d in self.model.directions}
        fresh = np.zeros(shape, bool)
        for rows, row, start in zip(sentences, packing.rows, packing.starts, strict=True):
            fresh[row, start] = True
            for direction in self.model.directions:
                in_order = rows[:0:-1] if direction == "backward" else rows[:-1]
                places[direction][row, start : start + len(in_order)] = in_order
        return places, fresh

    def _steps(self, table, places, fresh, state, as_rows=False):
        """Run on from a state: integers (B, T) a direction -> float (layers + 1, B, T, P) each.

        `as_rows` multiplies the table with the weights of the first layers, not each place.
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
    """Hand a sentence's part of a window, (..., T, P) a direction, to its collector.

    `at` is the step of the sentence, its begin mark being 0, that the window starts with; below 0
    where the sentence starts inside the window.
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
