"""The LSTM stacks of a biLM in NumPy, in place: the hot loop of the backend `numpy`.

It writes `bilm.layers.lstm_equation` a second time, because one sentence then takes two thirds of
the time: most of it is the allocation of results and the calls of NumPy.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bilm.inference.backend import ByDirection, Stacks, State, Window
from bilm.inference.blas import blas_threads, one_blas_thread
from bilm.layers.lstm_equation import LSTMState, forget_bias
from bilm.options.model_options import LstmOptions, ModelOptions
from bilm.support.process import available_cores
from bilm.tensors import CELL, FLOAT_BYTES, N_GATES

HALF = np.float32(0.5)


class NumpyCell:
    """An LSTM cell in float32, from W (2 P, 4 D), b (4 D,) and W_p (D, P) or None."""

    def __init__(
        self,
        lstm: LstmOptions,
        kernel: np.ndarray,
        bias: np.ndarray,
        projection: np.ndarray | None,
    ):
        self._lstm = lstm
        self._of_input, self._recurrent = np.split(_sigmoids_first(kernel), 2)  # W_x, W_h: P, 4 D
        self._bias = _sigmoids_first(bias + forget_bias(lstm.dim))  # b + u: 4 D
        self._projection = projection

    def run(
        self, x: np.ndarray, state: LSTMState, starts: Sequence[np.ndarray | None]
    ) -> tuple[np.ndarray, LSTMState]:
        """Run over x (T, B, P) from a state; return the outputs (T, B, P) and the last state.
        `starts`: rows that start from zero state at each step, boolean (B, 1), or None."""
        # W_x x + b: one product for all steps
        n_steps, n_rows, width = x.shape
        n_units = self._lstm.dim
        inputs = x.reshape(n_steps * n_rows, width) @ self._of_input + self._bias
        inputs = inputs.reshape(n_steps, n_rows, N_GATES * n_units)

        # The gates of a step, and views of them
        gates: np.ndarray = np.empty((n_rows, N_GATES * n_units), np.float32)
        sigmoids = gates[:, : 3 * n_units]
        i, f, o, j = gates.reshape(n_rows, N_GATES, n_units).swapaxes(0, 1)

        cell, hidden = state
        outputs = np.empty_like(x)
        for t, start in enumerate(starts):
            if start is not None:
                cell = np.where(start, 0, cell)
                hidden = np.where(start, 0, hidden)
            np.matmul(hidden, self._recurrent, out=gates)
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
            if self._projection is not None:
                hidden = hidden @ self._projection
                _clip(hidden, self._lstm.proj_clip)
            outputs[t] = hidden
        return outputs, LSTMState(cell, hidden)


def _sigmoids_first(weights: np.ndarray) -> np.ndarray:
    """Sort the gates of W or b, so that those with a sigmoid are side by side: (..., 4 D)."""
    i, j, f, o = np.split(weights, N_GATES, axis=-1)
    return np.concatenate([i, f, o, j], axis=-1)


def _clip(values: np.ndarray, bound: float | None) -> None:
    """Clip values in place, unless there is no bound; for small arrays faster than `np.clip`."""
    if bound:
        np.minimum(values, np.float32(bound), out=values)
        np.maximum(values, np.float32(-bound), out=values)


class NumpyStacks(Stacks):
    """The stacks of all directions, one cell per layer: see `bilm.layers.stack.LSTMStack`. `read`
    returns the stored tensor of a name."""

    has_threads = False

    def __init__(self, options: ModelOptions, read: Callable[[str], np.ndarray]):
        super().__init__(options)
        lstm = options.lstm
        self._has_skip_connections = lstm.use_skip_connections
        self._recurrent_bytes = FLOAT_BYTES * lstm.projection_dim * N_GATES * lstm.dim  # of W_h
        self._cells: dict[str, list[NumpyCell]] = {}
        for k, direction in enumerate(options.directions):
            self._cells[direction] = []
            for i in range(lstm.n_layers):
                name = CELL.format(k=k, i=i)
                projection = read(f"{name}/W_P_0") if lstm.projection_dim != lstm.dim else None
                cell = NumpyCell(lstm, read(f"{name}/W_0"), read(f"{name}/B"), projection)
                self._cells[direction].append(cell)

    def run_window(
        self, table: np.ndarray, window: Window, state: State
    ) -> tuple[ByDirection, State]:
        n_rows, n_steps = window.fresh.shape
        n_threads = available_cores()  # for each direction, and for each part of its rows
        n_parts = min(max(n_threads // len(self._cells), 1), n_rows)
        bounds = np.linspace(0, n_rows, n_parts + 1).astype(int)

        n_layers = len(state) // len(self._cells) // 2
        shape = n_layers + 1, n_rows, n_steps, table.shape[1]
        layers: ByDirection = {d: np.empty(shape, np.float32) for d in self._cells}
        last = [np.empty_like(values) for values in state]

        def run(task: tuple[int, str, slice]) -> None:
            k, direction, rows = task
            fresh = window.fresh[rows]
            starts = [column if column.any() else None for column in fresh.T[:, :, None]]
            x = table[window.places[direction][rows].T]  # T, B, P
            outputs = layers[direction][:, rows].swapaxes(1, 2)  # layers + 1, T, B, P
            outputs[0] = x
            # One cell at a time, so that the weights of a small cell remain in the cache.
            for i, cell in enumerate(self._cells[direction]):
                place = 2 * (k * n_layers + i)
                before = LSTMState(*(values[rows] for values in state[place : place + 2]))
                y, after = cell.run(x, before, starts)
                last[place][rows], last[place + 1][rows] = after
                x = y + x if self._has_skip_connections and i else y
                outputs[i + 1] = x

        parts = list(map(slice, bounds[:-1], bounds[1:]))
        tasks = [(k, d, rows) for k, d in enumerate(self._cells) for rows in parts]
        is_one = n_rows == 1  # one thread starts no others, and BLAS shares large products
        with (
            blas_threads(self._recurrent_bytes) if is_one else one_blas_thread(),
            ThreadPoolExecutor(n_threads) as threads,
        ):
            each = map if is_one else threads.map
            list(each(run, tasks))
        return layers, last
