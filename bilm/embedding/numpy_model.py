"""A biLM in NumPy: the numbers of `bilm.language_model.BiLM`, without Keras and its backends.

To import TensorFlow takes longer than to embed a few sentences with a small model. A program that
embeds many sentences, or has a large model, is faster with Keras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bilm.errors import OptionsError
from bilm.options.model_options import (
    N_CHARACTERS_WITH_PADDING,
    CharCnnOptions,
    LstmOptions,
    ModelOptions,
    dense_sizes,
)
from bilm.storage import names
from bilm.storage.stored_model import StoredModel

SMALL_WORK = 500_000_000  # largest product of tokens and weights that NumPy computes sooner
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}
Read = Callable[[str, tuple[int, ...]], np.ndarray]  # name and shape of a weight -> its value


def is_supported(options: ModelOptions) -> bool:
    """Return whether `NumpyBiLM` computes models with these options: those that read characters
    with a character CNN."""
    return options.char_cnn is not None


def is_small(options: ModelOptions, n_tokens: int) -> bool:
    """Return whether NumPy embeds this number of tokens before TensorFlow would have started."""
    return is_supported(options) and n_tokens * sum(dense_sizes(options)) <= SMALL_WORK


class NumpyBiLM:
    """A stored biLM for inference in float32.

    Args:
        stored: a model that reads characters.
    Attributes: `options`, `directions`, `precision`, `n_tokens`, as of `BiLM`; `encoder`.
    Raises: OptionsError for a model that does not read characters with a character CNN;
        WeightsError.
    """

    precision, n_tokens = "float32", None

    def __init__(self, stored: StoredModel):
        self.options = options = stored.options
        cnn = options.char_cnn
        if cnn is None:
            raise OptionsError(
                f"{stored}: the backend numpy computes models with a character CNN only; leave "
                "out backend"
            )
        tensors = stored.tensors
        names.check_held(options, tensors.held(), tensors.source)
        self.directions = options.directions
        with tensors.opened() as opened:
            wanted = list(self._names())
            found = names.found_among(wanted, tensors, names.is_bilm)

            def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
                where = f"{tensors.source}: {found[name]}"
                return names.checked(opened(found[name]), shape, name in names.PADDED, where)

            self.encoder = NumpyEncoder(cnn, options.lstm.projection_dim, read)
            self._layers = [
                NumpyLSTM(options.lstm, self._cells(i), read) for i in range(options.lstm.n_layers)
            ]

    def _names(self) -> Iterator[str]:
        """Yield the names of the weights, in the order of the graph."""
        cnn, lstm = self.options.char_cnn, self.options.lstm
        assert cnn is not None
        width = sum(n for _, n in cnn.filters)
        parts: list[tuple[str, dict[str, int]]] = [("characters", {})]
        parts += [("filter", {"i": i}) for i in range(len(cnn.filters))]
        parts += [("highway", {"i": i}) for i in range(cnn.n_highway)]
        parts += [("projection", {})] if width != lstm.projection_dim else []
        for k in range(len(self.directions)):
            for i in range(lstm.n_layers):
                parts.append(("cell", {"k": k, "i": i}))
                if lstm.dim != lstm.projection_dim:
                    parts.append(("cell projection", {"k": k, "i": i}))
        for part, index in parts:
            for variable in names.VARIABLES[part]:
                yield variable.hdf5[0].format(**index)

    def _cells(self, layer: int) -> list[str]:
        """Return the prefixes of the names of a layer's cells, one per direction."""
        stem = names.VARIABLES["cell"][0].hdf5[0].removesuffix("W_0")
        return [stem.format(k=k, i=layer) for k in range(len(self.directions))]

    def zero_state(self, batch_size: int) -> list[np.ndarray]:
        """Return the zero state: for each layer a cell and a hidden state, float32 (directions, B,
        ...)."""
        lstm = self.options.lstm
        shapes = [(len(self.directions), batch_size, n) for n in (lstm.dim, lstm.projection_dim)]
        return [np.zeros(shape, np.float32) for _ in self._layers for shape in shapes]

    def steps(
        self,
        table: np.ndarray,
        places: dict[str, np.ndarray],
        fresh: np.ndarray,
        state: Sequence[np.ndarray],
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Continue from a state.

        Args:
            table: token vectors, float32 (U, P).
            places: for each direction, in its reading order, rows of the table, integer (B, T).
            fresh: boolean (B, T), the steps at which a row starts from zero state.
            state: result of `zero_state`, or the last state.
        Returns: for each direction float32 (layers + 1, B, T, P), and the last state.
        """
        order = np.stack([places[d].T for d in self.directions], axis=1)  # T, directions, B
        x = table[order]
        outputs, last = [x], []
        starts = [column if column.any() else None for column in fresh.T[:, None, :, None]]
        for i, layer in enumerate(self._layers):
            y, *new = layer(x, state[2 * i], state[2 * i + 1], starts)
            last += new
            x = y + x if self.options.lstm.use_skip_connections and i else y
            outputs.append(x)
        layers = np.stack(outputs)  # layers + 1, T, directions, B, P
        return {
            d: layers[:, :, k].transpose(0, 2, 1, 3) for k, d in enumerate(self.directions)
        }, last


class NumpyEncoder:
    """The token encoder: see `bilm.layers.token_encoder.TokenEncoder`.

    Args:
        cnn: its options.
        projection_dim: width P of a token's vector.
        read: returns a weight.
    Attributes: `filters`, pairs of width and number.
    """

    def __init__(self, cnn: CharCnnOptions, projection_dim: int, read: Read):
        self.filters = list(cnn.filters)
        self._activate = ACTIVATIONS[cnn.activation]
        width, dim = sum(n for _, n in self.filters), cnn.embedding.dim
        self._characters = read("char_embed", (N_CHARACTERS_WITH_PADDING, dim))
        self._kernels = [
            read(f"CNN/W_cnn_{i}", (1, w, dim, n)).reshape(w * dim, n)
            for i, (w, n) in enumerate(self.filters)
        ]
        biases = [read(f"CNN/b_cnn_{i}", (n,)) for i, (_, n) in enumerate(self.filters)]
        self._bias = np.concatenate(biases)
        self._highways = [
            [
                read(f"CNN_high_{i}/{name}", shape)
                for kind in ("carry", "transform")
                for name, shape in ((f"W_{kind}", (width, width)), (f"b_{kind}", (width,)))
            ]
            for i in range(cnn.n_highway)
        ]
        self._projection = None
        if width != projection_dim:
            weight = read("CNN_proj/W_proj", (width, projection_dim))
            self._projection = weight, read("CNN_proj/b_proj", (projection_dim,))

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Encode tokens: integer (U, C), C at least the width of the widest filter -> float32 (U,
        P)."""
        vectors = self._characters[ids]  # U, C, E
        maxima = []
        for (width, _), kernel in zip(self.filters, self._kernels, strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(vectors, width, axis=1)
            n_tokens, n_places = windows.shape[:2]
            windows = windows.transpose(0, 1, 3, 2).reshape(n_tokens, n_places, len(kernel))
            maxima.append((windows @ kernel).max(axis=1))
        x = self._activate(np.concatenate(maxima, axis=1) + self._bias)
        for gate, gate_bias, transform, bias in self._highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        if self._projection is not None:
            x = x @ self._projection[0] + self._projection[1]
        return x


class NumpyLSTM:
    """One layer in all directions: see `bilm.layers.lstm.LSTMCell` for its equations.

    sigmoid(x) = (1 + tanh(x / 2)) / 2, so the weights of the sigmoid gates are stored divided by 2,
    which is exact, and one `tanh` computes all gates.

    Args:
        lstm: the options.
        cells: prefixes of the names of the cells, one per direction.
        read: returns a weight.
    """

    def __init__(self, lstm: LstmOptions, cells: Sequence[str], read: Read):
        self._dim, width = lstm.dim, lstm.projection_dim
        self._cell_clip, self._proj_clip = lstm.cell_clip, lstm.proj_clip
        n = len(cells)
        shape = (n, width, 4 * lstm.dim)
        self._input: np.ndarray = np.empty(shape, np.float32)
        self._recurrent: np.ndarray = np.empty(shape, np.float32)
        self._bias: np.ndarray = np.empty((n, 1, 4 * lstm.dim), np.float32)
        self._projection: np.ndarray | None = None
        if lstm.dim != width:
            self._projection = np.empty((n, lstm.dim, width), np.float32)
        for k, cell in enumerate(cells):
            kernel = read(f"{cell}W_0", (2 * width, 4 * lstm.dim))
            bias = read(f"{cell}B", (4 * lstm.dim,)).copy()
            bias[2 * lstm.dim : 3 * lstm.dim] += 1
            self._store(kernel[:width], self._input[k])
            self._store(kernel[width:], self._recurrent[k])
            self._store(bias[None], self._bias[k])
            if self._projection is not None:
                self._projection[k] = read(f"{cell}W_P_0", (lstm.dim, width))

    def _store(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy the gates i, j, f, o of (..., 4 D) to i, f, o, j, the sigmoid gates halved."""
        for place, gate in enumerate((0, 2, 3, 1)):
            columns = source[:, gate * self._dim : (gate + 1) * self._dim]
            scale = np.float32(1 if gate == 1 else 0.5)
            target[:, place * self._dim : (place + 1) * self._dim] = columns * scale

    def __call__(
        self,
        x: np.ndarray,
        cell: np.ndarray,
        hidden: np.ndarray,
        starts: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run over time.

        Args:
            x: float32 (T, directions, B, P).
            cell, hidden: the state, float32 (directions, B, D) and (directions, B, P).
            starts: for each step the rows that start from zero state, boolean (1, B, 1), or None.
        Returns: the outputs, float32 (T, directions, B, P), and the last state.
        """
        n_steps, n_directions, n_rows, width = x.shape
        # One product per direction for all steps.
        flat = x.transpose(1, 0, 2, 3).reshape(n_directions, n_steps * n_rows, width)
        inputs = (flat @ self._input + self._bias).reshape(n_directions, n_steps, n_rows, -1)
        sigmoids, d = slice(0, 3 * self._dim), self._dim
        outputs = np.empty_like(x)
        for t, start in enumerate(starts):
            if start is not None:
                cell, hidden = np.where(start, 0, cell), np.where(start, 0, hidden)
            gates = hidden @ self._recurrent
            gates += inputs[:, t]
            np.tanh(gates, out=gates)
            gates[..., sigmoids] *= 0.5
            gates[..., sigmoids] += 0.5
            cell = gates[..., d : 2 * d] * cell
            cell += gates[..., :d] * gates[..., 3 * d :]
            if self._cell_clip:
                _clip(cell, self._cell_clip)
            hidden = np.tanh(cell)
            hidden *= gates[..., 2 * d : 3 * d]
            if self._projection is not None:
                hidden = hidden @ self._projection
                if self._proj_clip:
                    _clip(hidden, self._proj_clip)
            outputs[t] = hidden
        return outputs, cell, hidden


def _clip(values: np.ndarray, bound: float) -> None:
    """Clip values in place; two operations take less time than `np.clip` for small arrays."""
    np.minimum(values, np.float32(bound), out=values)
    np.maximum(values, np.float32(-bound), out=values)
