"""A biLM in NumPy: the numbers of `bilm.language_model.BiLM`, without Keras and its backends.

It has two uses. `NumpyBiLM` reads a model from its files and embeds a short text sooner than
TensorFlow, which must be imported first; it also needs less memory. And to start the many small
operations of one sentence takes TensorFlow longer than to compute them, so NumPy computes it with
the weights of a Keras model (`shared_with`). Many sentences at a time are faster with Keras.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import active_count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

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
from bilm.support.process import machine_load

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.layers.lstm import LSTMCell
    from bilm.layers.token_encoder import TokenEncoder

FEW_WORDS = 64  # most words that NumPy encodes for a model of Keras
ONE_THREAD_BYTES = 1 << 20  # largest matrix that one core multiplies with a row as fast as several
SMALL_WORK = 100_000_000_000  # largest product of tokens and weights that NumPy computes sooner
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}
SIGMOIDS_FIRST = (0, 2, 3, 1)  # i, f, o, j in the stored order i, j, f, o
HALF = np.float32(0.5)
Read = Callable[[str, tuple[int, ...]], np.ndarray]  # name and shape of a weight -> its value


def is_supported(options: ModelOptions) -> bool:
    """Return whether `NumpyBiLM` computes models with these options: those that read characters
    with a character CNN."""
    return options.char_cnn is not None


def is_small(options: ModelOptions, n_tokens: int) -> bool:
    """Return whether NumPy embeds this number of tokens sooner than Keras, including the start of
    Keras."""
    return is_supported(options) and n_tokens * sum(dense_sizes(options)) <= SMALL_WORK


class NumpyBiLM:
    """A stored biLM for inference in float32.

    Args:
        stored: a model that reads characters.
    Attributes: `options`, `directions`, `precision`, `n_tokens`, as of `BiLM`; `encoder`, `stacks`.
    Raises: OptionsError for a model that does not read characters with a character CNN;
        WeightsError.
    """

    precision, n_tokens = "float32", None

    def __init__(self, stored: StoredModel):
        self.options = options = stored.options
        cnn, lstm = options.char_cnn, options.lstm
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

            self.encoder = _read_encoder(cnn, lstm.projection_dim, read)
            cells = {
                d: [_read_cell(lstm, self._cell(k, i), read) for i in range(lstm.n_layers)]
                for k, d in enumerate(self.directions)
            }
        self.stacks = NumpyStacks(lstm, cells)

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

    def _cell(self, direction: int, layer: int) -> str:
        """Return the prefix of the names of a cell's weights."""
        stem = names.VARIABLES["cell"][0].hdf5[0].removesuffix("W_0")
        return stem.format(k=direction, i=layer)


class NumpyEncoder(NamedTuple):
    """The token encoder: see `bilm.layers.token_encoder.TokenEncoder`.

    Fields:
        activation: key of `ACTIVATIONS`.
        characters: float32 (rows, E).
        kernels: one matrix per filter width, float32 (width * E, filters).
        bias: of all filters, float32 (F,).
        highways: for each layer W_g, b_g, W, b; float32 (F, F) and (F,).
        projection: W, b, float32 (F, P) and (P,), or None.
    """

    activation: str
    characters: np.ndarray
    kernels: list[np.ndarray]
    bias: np.ndarray
    highways: list[list[np.ndarray]]
    projection: tuple[np.ndarray, np.ndarray] | None

    @property
    def widest(self) -> int:
        """The width of the widest filter, in characters."""
        return max(len(kernel) for kernel in self.kernels) // self.characters.shape[1]

    @property
    def n_filters(self) -> int:
        """The number of filters of all widths."""
        return len(self.bias)

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Encode tokens: integer (U, C), C at least the width of the widest filter -> float32 (U,
        P)."""
        with _threads(len(ids) <= FEW_WORDS, 4 * self.n_filters**2):
            return self._encoded(ids)

    def _encoded(self, ids: np.ndarray) -> np.ndarray:
        vectors = self.characters[ids]  # U, C, E
        dim = vectors.shape[2]
        maxima = []
        for kernel in self.kernels:
            windows = np.lib.stride_tricks.sliding_window_view(vectors, len(kernel) // dim, axis=1)
            n_tokens, n_places = windows.shape[:2]
            # One product for the windows of all tokens.
            rows = windows.transpose(0, 1, 3, 2).reshape(n_tokens * n_places, len(kernel))
            maxima.append((rows @ kernel).reshape(n_tokens, n_places, -1).max(axis=1))
        x = ACTIVATIONS[self.activation](np.concatenate(maxima, axis=1) + self.bias)
        for gate, gate_bias, transform, bias in self.highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        if self.projection is not None:
            x = x @ self.projection[0] + self.projection[1]
        return x


class NumpyCell(NamedTuple):
    """The weights of an LSTM cell, gates in the order of `SIGMOIDS_FIRST`.

    Fields:
        of_input, recurrent: W_x and W_h, float32 (P, 4 D).
        bias: float32 (4 D,), with the 1 of the forget gate.
        projection: float32 (D, P), or None.
    """

    of_input: np.ndarray
    recurrent: np.ndarray
    bias: np.ndarray
    projection: np.ndarray | None


class NumpyStacks:
    """The stacks of all directions: see `bilm.layers.stack.LSTMStack` and, for the equations,
    `bilm.layers.lstm.LSTMCell`.

    Args:
        lstm: the options.
        cells: for each direction one cell per layer.
    """

    def __init__(self, lstm: LstmOptions, cells: dict[str, list[NumpyCell]]):
        self._lstm, self._cells = lstm, cells
        matrices = [cell.recurrent for own in cells.values() for cell in own]
        self._largest = max(matrix.nbytes for matrix in matrices)

    def zero_state(self, n_rows: int) -> list[np.ndarray]:
        """Return the zero state: by direction, layer, cell before hidden, float32 (B, ...)."""
        n_parts = len(self._cells) * self._lstm.n_layers
        widths = (self._lstm.dim, self._lstm.projection_dim) * n_parts
        return [np.zeros((n_rows, width), np.float32) for width in widths]

    def __call__(
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
        starts = [column if column.any() else None for column in fresh.T[:, :, None]]
        parts, layers = iter(state), {}
        last: list[np.ndarray] = []
        with _threads(len(fresh) == 1, self._largest):
            for direction, cells in self._cells.items():
                x = table[places[direction].T]  # T, B, P
                outputs = [x]
                # One cell at a time, so that the weights of a small cell remain in the cache.
                for i, cell in enumerate(cells):
                    y, *new = self._run(cell, x, next(parts), next(parts), starts)
                    last += new
                    x = y + x if self._lstm.use_skip_connections and i else y
                    outputs.append(x)
                layers[direction] = np.stack(outputs).transpose(0, 2, 1, 3)
        return layers, last

    def _run(
        self,
        weights: NumpyCell,
        x: np.ndarray,
        cell: np.ndarray,
        hidden: np.ndarray,
        starts: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run a cell over time.

        Args:
            x: float32 (T, B, P).
            cell, hidden: the state, float32 (B, D) and (B, P).
            starts: for each step the rows that start from zero state, boolean (B, 1), or None.
        Returns: the outputs, float32 (T, B, P), and the last state.
        """
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


class Shared(NamedTuple):
    """What NumPy computes with the weights of a model of Keras; None for what it does not."""

    encoder: NumpyEncoder | None = None
    stacks: NumpyStacks | None = None


def shared_with(model: BiLM) -> Shared:
    """Return the parts of a frozen model of Keras that NumPy computes.

    TensorFlow must compute the model, on the CPU, and its cells must be small. NumPy reads large
    cells hardly faster than TensorFlow, and its waiting threads slow down other programs. The
    encoder shares its weights with the model; the cells copy theirs. Weights in bfloat16 are always
    copied, as float32.
    """
    import keras

    if keras.backend.backend() != "tensorflow" or model.precision == "int8":
        return Shared()
    import tensorflow as tf

    cells = {d: [layer.cell for layer in model.stacks[d].layers] for d in model.directions}
    is_small = all(cell.laid_out.layout.joint for own in cells.values() for cell in own)
    if not is_small or tf.config.list_physical_devices("GPU"):
        return Shared()
    lstm = model.options.lstm
    copied = {d: [_copied_cell(cell, lstm) for cell in own] for d, own in cells.items()}
    encoder = None if model.options.char_cnn is None else _shared_encoder(model.encoder)
    return Shared(encoder, NumpyStacks(lstm, copied))


def _shared_encoder(encoder: TokenEncoder) -> NumpyEncoder:
    """Return an encoder with a character CNN and without a table of words."""
    cnn, highway = encoder.cnn, encoder.highway
    layers = zip(
        highway.gates, highway.gate_biases, highway.transforms, highway.biases, strict=True
    )
    kernels = map(_float32, cnn.kernels)
    return NumpyEncoder(
        cnn.activation,
        _float32(cnn.embedding),
        [kernel.reshape(-1, kernel.shape[-1]) for kernel in kernels],
        np.concatenate([_float32(bias) for bias in cnn.biases]),
        [list(map(_float32, layer)) for layer in layers],
        (_float32(encoder.kernel), _float32(encoder.bias)) if encoder.has_projection else None,
    )


def _threads(are_few: bool, n_bytes: int) -> AbstractContextManager[None]:
    """Return the context for products of rows with matrices of at most `n_bytes`: it limits NumPy
    to one thread if more do not help, with few rows, or if other programs use the cores."""
    if (are_few and n_bytes <= ONE_THREAD_BYTES) or _is_busy():
        return one_blas_thread()
    return nullcontext()


def _is_busy() -> bool:
    """Return whether the mean load of the last minute exceeds the cores of the machine by more than
    1."""
    return (machine_load() or 0) > (os.cpu_count() or 1) + 1


_blas = cache(ThreadpoolController)  # controls the BLAS libraries that NumPy has loaded


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy compute the products of the block in one thread.

    The threads of BLAS wait actively for each other. If other programs use the cores, a small
    product then takes many times as long as in one thread. The number of threads belongs to the
    process. If several threads of Python saved and restored it at the same time, it could remain
    1, so a block changes nothing in a program with several threads of Python.
    """
    if active_count() > 1:
        yield
        return
    with _blas().limit(limits=1, user_api="blas"):
        yield


def _float32(tensor: Any) -> np.ndarray:
    """Return a tensor as an array, which shares the memory of a float32 tensor."""
    return np.asarray(tensor, np.float32)


def _copied_cell(cell: LSTMCell, lstm: LstmOptions) -> NumpyCell:
    """Copy the weights of a frozen cell."""
    of_input, recurrent, biases, projection = cell.laid_out.arrays(lstm.projection_dim, lstm.dim)
    of_input, recurrent, bias = (
        np.concatenate([gates[k] for k in SIGMOIDS_FIRST], axis=-1)
        for gates in (of_input, recurrent, biases)
    )
    return NumpyCell(of_input, recurrent, bias, projection)


def _read_encoder(cnn: CharCnnOptions, projection_dim: int, read: Read) -> NumpyEncoder:
    """Read the weights of the encoder."""
    width, dim = sum(n for _, n in cnn.filters), cnn.embedding.dim
    characters = read("char_embed", (N_CHARACTERS_WITH_PADDING, dim))
    kernels = [
        read(f"CNN/W_cnn_{i}", (1, w, dim, n)).reshape(w * dim, n)
        for i, (w, n) in enumerate(cnn.filters)
    ]
    biases = [read(f"CNN/b_cnn_{i}", (n,)) for i, (_, n) in enumerate(cnn.filters)]
    highways = [
        [
            read(f"CNN_high_{i}/{name}", shape)
            for kind in ("carry", "transform")
            for name, shape in ((f"W_{kind}", (width, width)), (f"b_{kind}", (width,)))
        ]
        for i in range(cnn.n_highway)
    ]
    projection = None
    if width != projection_dim:
        weight = read("CNN_proj/W_proj", (width, projection_dim))
        projection = weight, read("CNN_proj/b_proj", (projection_dim,))
    bias = np.concatenate(biases)
    return NumpyEncoder(cnn.activation, characters, kernels, bias, highways, projection)


def _read_cell(lstm: LstmOptions, prefix: str, read: Read) -> NumpyCell:
    """Read the weights of the cell whose names have a prefix."""
    width, n_units = lstm.projection_dim, lstm.dim
    kernel = read(f"{prefix}W_0", (2 * width, 4 * n_units))
    bias = read(f"{prefix}B", (4 * n_units,)).copy()
    bias[2 * n_units : 3 * n_units] += 1

    def in_order(weight: np.ndarray) -> np.ndarray:
        gates = np.split(weight, 4, axis=-1)
        return np.concatenate([gates[k] for k in SIGMOIDS_FIRST], axis=-1)

    projection = read(f"{prefix}W_P_0", (n_units, width)) if n_units != width else None
    of_input, recurrent = in_order(kernel[:width]), in_order(kernel[width:])
    return NumpyCell(of_input, recurrent, in_order(bias), projection)


def _clip(values: np.ndarray, bound: float | None) -> None:
    """Clip values in place, unless there is no bound; two operations take less time than `np.clip`
    for small arrays."""
    if bound:
        np.minimum(values, np.float32(bound), out=values)
        np.maximum(values, np.float32(-bound), out=values)
