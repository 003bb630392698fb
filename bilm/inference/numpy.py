"""A biLM in NumPy, without Keras and its backends.

It embeds a short text sooner than TensorFlow, which must be imported first, and it needs less
memory. The backend `keras` computes single sentences with `NumpyStacks`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import active_count
from typing import NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend, Run, continued, zero_state
from bilm.options.model_options import ModelOptions
from bilm.storage import names
from bilm.storage.stored_model import StoredModel
from bilm.tensors import CELL, tensors_of

FEW_WORDS = 64  # most words whose products one thread computes
ONE_THREAD_BYTES = 1 << 20  # largest matrix that one core multiplies with a row as fast as several
SIGMOIDS_FIRST = (0, 2, 3, 1)  # i, f, o, j in the stored order i, j, f, o
HALF = np.float32(0.5)
Read = Callable[[str], np.ndarray]  # name of a weight -> its value


class NumpyCell(NamedTuple):
    """The weights of an LSTM cell, float32, gates in the order of `SIGMOIDS_FIRST`."""

    of_input: np.ndarray  # W_x: P, 4 D
    recurrent: np.ndarray  # W_h: P, 4 D
    bias: np.ndarray  # 4 D, with the 1 of the forget gate
    projection: np.ndarray | None  # D, P


def in_numpy_order(gates: Sequence[np.ndarray]) -> np.ndarray:
    """Join arrays by gate, in the stored order, along the last axis, sigmoids first."""
    return np.concatenate([gates[k] for k in SIGMOIDS_FIRST], axis=-1)


class NumpyStacks:
    """The stacks of all directions, one cell per layer: see `bilm.layers.stack.LSTMStack` and, for
    the equations, `bilm.layers.lstm.LSTMCell`."""

    def __init__(self, options: ModelOptions, cells: dict[str, list[NumpyCell]]):
        self._options, self._lstm, self._cells = options, options.lstm, cells
        self._largest = max(cell.recurrent.nbytes for own in cells.values() for cell in own)

    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows: see `Backend.begin`."""
        return continued(self._run_window, table, zero_state(self._options, n_rows))

    def _run_window(
        self,
        table: np.ndarray,
        places: dict[str, np.ndarray],
        fresh: np.ndarray,
        state: Sequence[np.ndarray],
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Run a window from a state; return the layers by direction and the last state."""
        starts = [column if column.any() else None for column in fresh.T[:, :, None]]
        parts, layers = iter(state), {}
        last: list[np.ndarray] = []
        with blas_threads(self._largest if len(fresh) == 1 else math.inf):
            for direction, cells in self._cells.items():
                x = table[places[direction].T]  # T, B, P
                outputs = [x]
                # One cell at a time, so that the weights of a small cell remain in the cache.
                for i, cell in enumerate(cells):
                    y, *new = self._run_cell(cell, x, next(parts), next(parts), starts)
                    last += new
                    x = y + x if self._lstm.use_skip_connections and i else y
                    outputs.append(x)
                layers[direction] = np.stack(outputs).transpose(0, 2, 1, 3)
        return layers, last

    def _run_cell(
        self,
        weights: NumpyCell,
        x: np.ndarray,
        cell: np.ndarray,
        hidden: np.ndarray,
        starts: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run a cell over x (T, B, P) from a state (B, D) and (B, P); `starts` are the rows that
        start from zero state at each step, boolean (B, 1), or None. Return the outputs (T, B, P)
        and the last state."""
        n_steps, n_rows, width = x.shape
        n_gates, n_units = len(weights.bias), self._lstm.dim
        # One product for all steps.
        inputs = x.reshape(n_steps * n_rows, width) @ weights.of_input + weights.bias
        inputs = inputs.reshape(n_steps, n_rows, n_gates)
        gates: np.ndarray = np.empty((n_rows, n_gates), np.float32)
        sigmoids = gates[:, : 3 * n_units]
        i, f, o, j = (gates[:, k * n_units : (k + 1) * n_units] for k in range(4))
        outputs = np.empty_like(x)
        for t, start in enumerate(starts):
            if start is not None:
                cell, hidden = np.where(start, 0, cell), np.where(start, 0, hidden)
            np.matmul(hidden, weights.recurrent, out=gates)
            gates += inputs[t]
            # sigmoid(x) = (1 + tanh(x / 2)) / 2, so that one operation computes all gates.
            sigmoids *= HALF
            np.tanh(gates, out=gates)
            sigmoids *= HALF
            sigmoids += HALF
            cell = f * cell
            cell += np.multiply(i, j, out=i)
            _clip(cell, self._lstm.cell_clip)
            hidden = np.tanh(cell)
            hidden *= o
            if weights.projection is not None:
                hidden = hidden @ weights.projection
                _clip(hidden, self._lstm.proj_clip)
            outputs[t] = hidden
        return outputs, cell, hidden


def _clip(values: np.ndarray, bound: float | None) -> None:
    """Clip values in place, unless there is no bound; for small arrays faster than `np.clip`."""
    if bound:
        np.minimum(values, np.float32(bound), out=values)
        np.maximum(values, np.float32(-bound), out=values)


class NumpyBackend(Backend):
    """A biLM that reads characters, words of lexicons, or both, in float32.

    Args:
        options: of the model.
        read: returns the weight of a name, with the padding row of a model with padding.
    """

    def __init__(self, options: ModelOptions, read: Read):
        super().__init__(options)
        names_of_model = {spec.name for spec in tensors_of(options)}
        encoder = options.char_cnn or options.lexicon_encoder
        assert encoder is not None
        parts = ("word_embed",), ("char_embed",), ("CNN_proj/W_proj", "CNN_proj/b_proj")
        known = [[read(name) for name in part if name in names_of_model] for part in parts]
        self._words, self._characters, self._projection = known  # empty if the model has none
        kernels = [read(f"CNN/W_cnn_{i}") for i in range(len(encoder.filters or ()))]
        # One matrix per filter width: width * E, filters.
        self._kernels = [kernel.reshape(-1, kernel.shape[-1]) for kernel in kernels]
        self._biases = [read(f"CNN/b_cnn_{i}") for i in range(len(kernels))]
        self._activate = ACTIVATIONS[encoder.activation].numpy
        kinds = "W_carry", "b_carry", "W_transform", "b_transform"
        self._highways = [
            [read(f"CNN_high_{i}/{kind}") for kind in kinds] for i in range(encoder.n_highway)
        ]
        self._n_filters = sum(map(len, self._biases))
        layers = range(options.lstm.n_layers)
        cells = {
            d: [_read_cell(options, f"{CELL}/".format(k=k, i=i), read) for i in layers]
            for k, d in enumerate(options.directions)
        }
        self._stacks = NumpyStacks(options, cells)

    @classmethod
    def unsupported(cls, options: ModelOptions, precision: str) -> str | None:
        """Return why such a model is not computed: see `Backend.unsupported`."""
        if precision != "float32":
            return f"computes in float32, not in {precision}"
        return "does not compute models that read words" if options.reads_words else None

    @classmethod
    def open(cls, stored: StoredModel, precision: str) -> NumpyBackend:
        """Load a model: see `Backend.open`."""
        options, tensors = stored.options, stored.tensors
        specs = {spec.name: spec for spec in tensors_of(options)}
        stored_names = names.found_names(specs, tensors, names.is_bilm)
        with tensors.opened() as opened:

            def read(name: str) -> np.ndarray:
                stored_name = stored_names[name]
                where = f"{tensors.source}: {stored_name}"
                return names.checked(opened(stored_name), specs[name], True, where)

            return cls(options, read)

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        with blas_threads(4 * self._n_filters**2 if len(ids) <= FEW_WORDS else math.inf):
            words, characters = np.split(ids, [len(self._words)], axis=1)
            features = [table[words[:, 0]] for table in self._words]
            features += [self._cnn(table[characters]) for table in self._characters]
            x = np.concatenate(features, axis=1)
            return x @ self._projection[0] + self._projection[1] if self._projection else x

    def _cnn(self, vectors: np.ndarray) -> np.ndarray:
        """Encode tokens from the vectors of their characters: float32 (U, C, E) -> (U, F)."""
        x = self._activate(np, self._maxima(vectors) + np.concatenate(self._biases))
        for gate, gate_bias, transform, bias in self._highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        return x

    def _maxima(self, vectors: np.ndarray) -> np.ndarray:
        """Return the maximum of each filter over its places: float32 (U, C, E) -> (U, F)."""
        dim, maxima = vectors.shape[2], []
        for kernel in self._kernels:
            windows = np.lib.stride_tricks.sliding_window_view(vectors, len(kernel) // dim, axis=1)
            n_tokens, n_places = windows.shape[:2]
            # One product for the windows of all tokens.
            rows = windows.transpose(0, 1, 3, 2).reshape(n_tokens * n_places, len(kernel))
            maxima.append((rows @ kernel).reshape(n_tokens, n_places, -1).max(axis=1))
        return np.concatenate(maxima, axis=1)

    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows: see `Backend.begin`."""
        return self._stacks.begin(table, n_rows)


BACKEND = NumpyBackend


def _read_cell(options: ModelOptions, prefix: str, read: Read) -> NumpyCell:
    """Read the weights of the cell whose names have a prefix."""
    width, n_units = options.lstm.projection_dim, options.lstm.dim
    kernel, bias = read(f"{prefix}W_0"), read(f"{prefix}B").copy()
    bias[2 * n_units : 3 * n_units] += 1
    parts = kernel[:width], kernel[width:], bias
    of_input, recurrent, bias = (in_numpy_order(np.split(part, 4, axis=-1)) for part in parts)
    projection = read(f"{prefix}W_P_0") if n_units != width else None
    return NumpyCell(of_input, recurrent, bias, projection)


# --- threads of BLAS ---

_blas = cache(ThreadpoolController)  # controls the BLAS libraries that NumPy has loaded


@contextmanager
def blas_threads(n_bytes: float) -> Iterator[None]:
    """Let NumPy compute the products of the block, with matrices of at most `n_bytes`, in one
    thread if more do not help or if other programs use the cores.

    The threads of BLAS wait actively for each other, so if other programs use the cores, a small
    product takes many times as long as in one thread. The number of threads belongs to the process.
    A block changes nothing in a program with several threads of Python, which could save and
    restore it at the same time.
    """
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1) + 1
    if active_count() > 1 or not (is_busy or n_bytes <= ONE_THREAD_BYTES):
        yield
        return
    with _blas().limit(limits=1, user_api="blas"):
        yield
