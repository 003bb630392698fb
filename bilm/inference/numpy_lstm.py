"""The LSTM stacks of a biLM in NumPy, in place: the hot loop of the backend `numpy`.

It writes `bilm.layers.lstm_equation` a second time, because one sentence then takes two thirds of
the time: most of it is the allocation of results and the calls of NumPy.

The backend `keras` also runs one sentence of a small model with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bilm.inference.blas import blas_threads
from bilm.layers.lstm_equation import forget_bias
from bilm.options.model_options import ModelOptions
from bilm.tensors import CELL

SIGMOIDS_FIRST = (0, 2, 3, 1)  # i, f, o, j in the stored order i, j, f, o
HALF = np.float32(0.5)
Read = Callable[[str], np.ndarray]  # name of a tensor -> its value


class NumpyCell(NamedTuple):
    """The weights of an LSTM cell, float32, gates in the order of `SIGMOIDS_FIRST`."""

    of_input: np.ndarray  # W_x: P, 4 D
    recurrent: np.ndarray  # W_h: P, 4 D
    bias: np.ndarray  # 4 D, with the 1 of the forget gate
    projection: np.ndarray | None  # D, P


def numpy_cell(
    gates: Sequence[np.ndarray], biases: Sequence[np.ndarray], projection: np.ndarray | None
) -> NumpyCell:
    """Return the weights of a cell from W, b and u by gate, in the stored order, and W_p."""
    kernel = np.concatenate([gates[k] for k in SIGMOIDS_FIRST], axis=1)  # 2 P, 4 D
    bias = np.concatenate([biases[k] for k in SIGMOIDS_FIRST])
    of_input, recurrent = np.split(kernel, 2)
    return NumpyCell(of_input, recurrent, bias, projection)


class NumpyStacks:
    """The stacks of all directions, one cell per layer: see `bilm.layers.stack.LSTMStack`."""

    def __init__(self, options: ModelOptions, cells: dict[str, list[NumpyCell]]):
        self._lstm = options.lstm
        self._cells = cells
        self._largest = max(cell.recurrent.nbytes for stack in cells.values() for cell in stack)

    @classmethod
    def read(cls, options: ModelOptions, read: Read) -> NumpyStacks:
        """Return the stacks of a stored model; `read` returns the tensor of a name."""
        lstm = options.lstm
        cells: dict[str, list[NumpyCell]] = {}
        for k, direction in enumerate(options.directions):
            cells[direction] = []
            for i in range(lstm.n_layers):
                name = CELL.format(k=k, i=i)
                gates = np.split(read(f"{name}/W_0"), 4, axis=1)
                biases = np.split(read(f"{name}/B") + forget_bias(lstm.dim), 4)
                projection = read(f"{name}/W_P_0") if lstm.projection_dim != lstm.dim else None
                cells[direction].append(numpy_cell(gates, biases, projection))
        return cls(options, cells)

    def run_window(
        self, table: np.ndarray, places: dict[str, np.ndarray], fresh: np.ndarray, state: list[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Run a window: see `Backend.run_window`."""
        starts = [column if column.any() else None for column in fresh.T[:, :, None]]
        states = iter(state)
        last: list[np.ndarray] = []
        layers: dict[str, np.ndarray] = {}
        with blas_threads(self._largest if len(fresh) == 1 else math.inf):
            for direction, cells in self._cells.items():
                x = table[places[direction].T]  # T, B, P
                outputs = [x]
                # One cell at a time, so that the weights of a small cell remain in the cache.
                for i, cell in enumerate(cells):
                    y, *last_state = self._run_cell(cell, x, next(states), next(states), starts)
                    last += last_state
                    x = y + x if self._lstm.use_skip_connections and i else y
                    outputs.append(x)
                layers[direction] = np.stack(outputs).transpose(0, 2, 1, 3)  # layers + 1, B, T, P
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
        # W_x x + b: one product for all steps
        n_steps, n_rows, width = x.shape
        n_gates, n_units = len(weights.bias), self._lstm.dim
        inputs = x.reshape(n_steps * n_rows, width) @ weights.of_input + weights.bias
        inputs = inputs.reshape(n_steps, n_rows, n_gates)

        # The gates of a step, and views of them
        gates: np.ndarray = np.empty((n_rows, n_gates), np.float32)
        sigmoids = gates[:, : 3 * n_units]
        i, f, o, j = (gates[:, k * n_units : (k + 1) * n_units] for k in range(4))

        outputs = np.empty_like(x)
        for t, start in enumerate(starts):
            if start is not None:
                cell = np.where(start, 0, cell)
                hidden = np.where(start, 0, hidden)
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
