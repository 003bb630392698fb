"""A biLM in NumPy, without Keras and its backends. It computes a short text sooner than TensorFlow,
which must be imported first, and needs less memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend, ByDirection, Stacks, StoredCell, Window, stored_cell
from bilm.inference.blas import blas_threads, one_blas_thread
from bilm.inference.softmax import Softmax
from bilm.layers.lstm_equation import LSTMState, forget_bias
from bilm.layers.types import State
from bilm.options.model_options import LstmOptions, ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.support.process import available_cores
from bilm.tensors import FLOAT_BYTES, N_GATES, n_filters

FEW_WORDS = 64  # most words whose products one thread computes
HALF = np.float32(0.5)
GATE_BYTES = 1 << 19  # of the gates that are computed at a time, in a processor's cache


def load(stored: StoredModel, precision: str, has_softmax: bool) -> Backend:
    """Load a model: see `open_backend`."""
    options = stored.options
    values = dict(stored.weights(has_softmax=has_softmax).values())
    stacks = NumpyStacks(options, values.pop)
    table = values.get("embedding")
    softmax = None
    if has_softmax:
        kernel = values["embedding" if options.share_embedding_softmax else "softmax/W"]
        softmax = Softmax(kernel, values["softmax/b"])
    if table is None:
        return Backend(options, None, NumpyEncoder(options, values), stacks, softmax=softmax)
    return Backend(options, len(table), table.__getitem__, stacks, softmax=softmax)


class NumpyEncoder:
    """The vector of a token from its characters, its word in a lexicon, or both: see
    `bilm.layers.token_encoder.TokenEncoder`."""

    def __init__(self, options: ModelOptions, values: Mapping[str, np.ndarray]):
        encoder = options.encoder
        assert encoder is not None
        self._words = values.get("word_embed")
        self._characters = values.get("char_embed")
        self._activate = ACTIVATIONS[encoder.activation].numpy
        n_widths = len(options.filters)
        self._kernels = [values[f"CNN/W_cnn_{i}"] for i in range(n_widths)]  # 1, width, E, n
        self._biases = [values[f"CNN/b_cnn_{i}"] for i in range(n_widths)]
        self._highways: list[list[np.ndarray]] = []
        for i in range(encoder.n_highway):
            kinds = "W_carry", "b_carry", "W_transform", "b_transform"
            self._highways.append([values[f"CNN_high_{i}/{kind}"] for kind in kinds])
        self._highway_bytes = 4 * n_filters(options.filters) ** 2
        self._projection = values.get("CNN_proj/W_proj")
        self._projection_bias = values.get("CNN_proj/b_proj")

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        with blas_threads(self._highway_bytes if len(ids) <= FEW_WORDS else math.inf):
            features = []
            if self._words is not None:
                features.append(self._words[ids[:, 0]])
                ids = ids[:, 1:]
            if self._characters is not None:
                features.append(self._cnn(self._characters[ids]))
            x = np.concatenate(features, axis=1)
            if self._projection is None:
                return x
            return x @ self._projection + self._projection_bias

    def _cnn(self, vectors: np.ndarray) -> np.ndarray:
        """Encode tokens from the vectors of their characters: float32 (U, C, E) -> (U, F)."""
        maxima = []  # of each filter over its places
        for kernel in self._kernels:
            _, width, dim, n = kernel.shape
            windows = sliding_window_view(vectors, width, axis=1)  # U, places, E, width
            # One product for the windows of all tokens.
            rows = windows.transpose(0, 1, 3, 2).reshape(-1, width * dim)
            scores = rows @ kernel.reshape(width * dim, n)
            scores = scores.reshape(*windows.shape[:2], n)  # U, places, n
            maxima.append(scores.max(axis=1))
        maximum = np.concatenate(maxima, axis=1)  # U, F

        x = self._activate(np, maximum + np.concatenate(self._biases))
        for gate, gate_bias, transform, bias in self._highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))  # the sigmoid
            transformed = np.maximum(x @ transform + bias, 0)
            x = x + g * (transformed - x)
        return x


# --- LSTMs ---


class NumpyCell:
    """An LSTM cell in float32, in place. It writes `bilm.layers.lstm_equation` a second time,
    because one sentence then takes two thirds of the time: most of it is the allocation of results
    and the calls of NumPy.

    sigmoid(x) = (1 + tanh(x / 2)) / 2, so that one operation computes all gates. W and b are halved
    in advance; the sums, which contain one sigmoid, and W_p after the step. Halves are exact.
    """

    def __init__(self, lstm: LstmOptions, stored: StoredCell):
        self._lstm = lstm
        x, h = np.split(stored.kernel, 2)
        of_input = np.concatenate([x, [stored.bias + forget_bias(lstm.dim)]])
        self._of_input = _sigmoids_first(of_input)  # W_x and b + u: P + 1, 4 D
        self._recurrent = _sigmoids_first(h)  # W_h: P, 4 D
        self._projection = None if stored.projection is None else HALF * stored.projection

    def run(
        self,
        x: np.ndarray,
        places: np.ndarray | None,
        state: LSTMState,
        starts: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, LSTMState]:
        """Run from a state; return the outputs (T, B, P) and the last state.

        Args:
            x: the inputs, float32 (T, B, P), or (U, P) with `places`.
            places: the rows of x that are read, integer (T, B), or None.
            starts: rows that start from zero state at each step, boolean (B,), or None.
        """
        # W_x x + b: one product for all steps
        n_rows, n_units = len(state.cell), self._lstm.dim
        x_and_1: np.ndarray = np.ones((x.size // x.shape[-1], x.shape[-1] + 1), np.float32)
        x_and_1[:, :-1] = x.reshape(-1, x.shape[-1])
        inputs = x_and_1 @ self._of_input
        inputs = inputs.reshape(*x.shape[:-1], N_GATES * n_units)

        cell, hidden = state.cell.copy(), state.hidden
        gates: np.ndarray = np.empty((n_rows, N_GATES * n_units), np.float32)
        results: np.ndarray = np.empty((n_rows, n_units), np.float32)
        part_rows = max(GATE_BYTES // gates[0].nbytes, 1)
        parts = [slice(row, row + part_rows) for row in range(0, n_rows, part_rows)]
        outputs: np.ndarray = np.empty((len(starts), n_rows, x.shape[-1]), np.float32)
        for t, start in enumerate(starts):
            if start is not None:
                cell[start] = 0
                hidden = np.where(start[:, None], 0, hidden)
            np.matmul(hidden, self._recurrent, out=gates)
            for rows in parts:
                here = (t, rows) if places is None else places[t, rows]
                self._step(gates[rows], inputs[here], cell[rows], results[rows])
            hidden = outputs[t]
            if self._projection is None:
                np.multiply(results, HALF, out=hidden)
            else:
                np.matmul(results, self._projection, out=hidden)
                _clip(hidden, self._lstm.proj_clip)
        return outputs, LSTMState(cell, hidden)

    def _step(
        self, gates: np.ndarray, inputs: np.ndarray, cell: np.ndarray, results: np.ndarray
    ) -> None:
        """Add the inputs to W_h h (B, 4 D) and compute, in place, the new cell and twice its
        results before the projection, both (B, D)."""
        gates += inputs
        np.tanh(gates, out=gates)
        i, f, o, j = gates.reshape(len(gates), N_GATES, -1).swapaxes(0, 1)
        gates[:, : 3 * cell.shape[1]] += 1
        cell *= f
        np.multiply(i, j, out=i)
        cell += i
        cell *= HALF
        _clip(cell, self._lstm.cell_clip)
        np.tanh(cell, out=results)
        results *= o


def _sigmoids_first(weights: np.ndarray) -> np.ndarray:
    """Sort the gates of W or b: those with a sigmoid, halved, are side by side; (..., 4 D)."""
    i, j, f, o = np.split(weights, N_GATES, axis=-1)
    return np.concatenate([HALF * i, HALF * f, HALF * o, j], axis=-1)


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
                self._cells[direction].append(NumpyCell(lstm, stored_cell(lstm, read, k, i)))

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
            starts = [column if column.any() else None for column in fresh.T]
            places = window.places[direction][rows].T  # T, B
            x = table[places]  # T, B, P
            outputs = layers[direction][:, rows].swapaxes(1, 2)  # layers + 1, T, B, P
            outputs[0] = x
            # The first layer reads each token once.
            distinct, places = np.unique(places, return_inverse=True)
            inputs, places = table[distinct], places.reshape(x.shape[:2])  # U, P; T, B
            # One cell at a time, so that the weights of a small cell remain in the cache.
            for i, cell in enumerate(self._cells[direction]):
                first = 2 * (k * n_layers + i)
                before = LSTMState(*(values[rows] for values in state[first : first + 2]))
                y, after = cell.run(inputs, places, before, starts)
                last[first][rows], last[first + 1][rows] = after
                x = y + x if self._has_skip_connections and i else y
                outputs[i + 1] = x
                inputs, places = x, None

        parts = list(map(slice, bounds[:-1], bounds[1:]))
        tasks = []
        for k, direction in enumerate(self._cells):
            tasks += [(k, direction, rows) for rows in parts]
        is_one = n_rows == 1  # one thread starts no others, and BLAS shares large products
        with (
            blas_threads(self._recurrent_bytes) if is_one else one_blas_thread(),
            ThreadPoolExecutor(n_threads) as threads,
        ):
            each = map if is_one else threads.map
            list(each(run, tasks))
        return layers, last
