"""A biLM computed by Keras, compiled where its backend compiles."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops, tree

from bilm.inference.backend import Backend, ByDirection, Stacks, Window
from bilm.inference.numpy import FEW_WORDS, NumpyEncoder, NumpyStacks
from bilm.inference.softmax import Softmax
from bilm.inference.words import most_rows
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.types import State, Tensor
from bilm.storage.stored_model import StoredModel
from bilm.storage.stored_weights import StoredWeights
from bilm.support.process import return_freed_memory, share_cores

ROW_STEP = 64  # step between large numbers of rows


def load(stored: StoredModel, precision: str, has_softmax: bool) -> Backend:
    """Load a model: see `open_backend`."""
    share_cores()
    weights = stored.weights(has_softmax=has_softmax)
    backend = keras_backend(weights.build(precision=precision, frozen=True), weights)
    return_freed_memory()
    return backend


def keras_backend(model: BiLM, weights: StoredWeights | None = None) -> Backend:
    """Return the backend of a built biLM without padding; with its softmax for scoring. `weights`:
    the stored weights of a frozen model."""
    library = keras.backend.backend()
    stacks = JaxStacks if library == "jax" else KerasStacks
    one_row: Stacks | None = None
    few = None
    if library == "tensorflow" and weights and numpy_runs_sentences(model):
        values = dict(weights.values())
        one_row = NumpyStacks(model.options, values.pop)
        few = None if model.options.reads_words else NumpyEncoder(model.options, values)
    elif library == "tensorflow":
        one_row = KerasStacks(model, n_rows=1)
    return Backend(
        model.options,
        n_tokens=model.n_tokens if model.options.reads_words else None,
        encode=KerasEncoder(model, few),
        stacks=stacks(model),
        one_row=one_row,
        softmax=None if model.softmax is None else _softmax(model.softmax),
        runs_ahead=library == "tensorflow",
    )


def numpy_runs_sentences(model: BiLM) -> bool:
    """Return whether NumPy computes single sentences of a model on TensorFlow, which starts many
    small operations more slowly than it computes them: if weights are constant, in float32, on the
    CPU, and cells small. NumPy reads large cells hardly faster."""
    first, *_ = model.stacks.values()
    cell = first.layers[0].cell
    is_small = cell.frozen and not cell.laid_out.of_input
    return is_small and model.precision == "float32" and keras_is_on_cpu()


def keras_is_on_cpu() -> bool:
    """Return whether Keras computes on the CPU, where NumPy computes the softmax of every backend,
    because it keeps scores in the cache."""
    return "CPU" in str(ops.convert_to_tensor(0.0).device).upper()


def _softmax(layer: SampledSoftmax) -> Softmax:
    if keras_is_on_cpu():
        return Softmax(*map(np.asarray, (layer.kernel, layer.bias)))
    return KerasSoftmax(layer)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def padded_rows(n: int, step: int) -> int:
    """Round a number of rows up: to a power of two up to `step`, to a multiple of `step` up to
    `ROW_STEP`, and to a multiple of `ROW_STEP` above. Libraries compile code for each number."""
    step = ROW_STEP if n > ROW_STEP else min(power_of_two(n), step)
    return -(-max(n, 1) // step) * step


class KerasEncoder:
    """The token encoder, compiled for characters; `few` encodes up to `FEW_WORDS` words."""

    def __init__(self, model: BiLM, few: NumpyEncoder | None = None):
        self._few = few
        self._filters = model.options.filters
        self._encode: Callable[[Tensor], Tensor] = model.encoder
        if not model.options.reads_words:
            self._encode = compiled(model.encoder, [keras.KerasTensor((None, None), "int32")])

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        n_tokens = len(ids)
        if self._few is not None and n_tokens <= FEW_WORDS:
            return self._few(ids)
        if ids.ndim == 2:
            n_rows = min(padded_rows(n_tokens, 8), most_rows(self._filters, ids.shape[1]))
            last_token = np.repeat(ids[-1:], n_rows - n_tokens, axis=0)
            ids = np.concatenate([ids, last_token])
        vectors = self._encode(ops.convert_to_tensor(ids))
        return ops.convert_to_numpy(vectors)[:n_tokens]


class KerasSoftmax(Softmax):
    """The softmax of a biLM on a GPU, which computes losses; NumPy computes the rest."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(*map(ops.convert_to_numpy, (layer.kernel, layer.bias)))
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        self._run = compiled(layer, [hidden, keras.KerasTensor((None,), "int32")])

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        n_rows = padded_rows(len(hidden), ROW_STEP)
        hidden_rows = ops.convert_to_tensor(np.resize(hidden, (n_rows, hidden.shape[1])))
        losses = self._run(hidden_rows, ops.convert_to_tensor(np.resize(targets, n_rows)))
        return ops.convert_to_numpy(losses)[: len(hidden)]


class KerasStacks(Stacks):
    """The stacks of a biLM, compiled for windows of `n_rows` rows, or of any number."""

    def __init__(self, model: BiLM, n_rows: int | None = None):
        super().__init__(model.options)
        self._model = model
        n_features = model.options.lstm.projection_dim
        table = keras.KerasTensor((None, n_features), "float32")
        places = dict.fromkeys(model.directions, keras.KerasTensor((n_rows, None), "int32"))
        fresh = keras.KerasTensor((n_rows, None), "bool")
        state = [keras.KerasTensor((n_rows, width), "float32") for width in self.state_widths]
        self._run = compiled(self._window, [table, places, fresh, state])

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        return tree.map_structure(ops.convert_to_tensor, super().start(table, n_rows))

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        places, fresh = tree.map_structure(ops.convert_to_tensor, window)
        layers, state = self._run(table, places, fresh, state)
        return {d: ops.convert_to_numpy(x) for d, x in layers.items()}, state

    def _window(self, table, places, fresh, state, mask=None):
        model = self._model
        vectors = {d: ops.take(table, places[d], axis=0) for d in model.directions}
        outputs, state = model.windows(vectors, state, mask, fresh=fresh)
        layers = {}
        for direction, of_tokens in vectors.items():
            layers[direction] = ops.stack([of_tokens, *outputs[direction]])
        return layers, state


class JaxStacks(KerasStacks):
    """The stacks on JAX, which compiles a program for each shape: numbers of words, rows and steps
    are padded to powers of two."""

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        n_words, width = table.shape
        return super().start(_padded(table, power_of_two(n_words), width), power_of_two(n_rows))

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        n_rows, n_steps = window.fresh.shape
        shape = power_of_two(n_rows), power_of_two(n_steps)
        places, fresh = tree.map_structure(lambda grid: _padded(grid, *shape), window)
        mask = _padded(np.ones_like(window.fresh), *shape)
        layers, state = self._run(table, places, fresh, state, mask)
        cropped = {}
        for direction in window.places:  # JAX has sorted the keys of `layers`
            cropped[direction] = np.asarray(layers[direction])[:, :n_rows, :n_steps]
        return cropped, state


def _padded(array: np.ndarray, n_rows: int, n_columns: int) -> np.ndarray:
    more_rows = n_rows - array.shape[0]
    more_columns = n_columns - array.shape[1]
    return np.pad(array, [(0, more_rows), (0, more_columns)])
