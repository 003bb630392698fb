"""A biLM computed by Keras, compiled where its backend compiles."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from bilm.data.alphabets import alphabet_of
from bilm.inference.backend import Backend, Stacks
from bilm.inference.keras_stacks import (
    JaxStacks,
    KerasStacks,
    TorchStacks,
    power_of_two,
)
from bilm.inference.numpy import FEW_WORDS, NumpyEncoder
from bilm.inference.numpy_lstm import NumpyStacks
from bilm.inference.numpy_policy import keras_is_on_cpu, numpy_runs_sentences
from bilm.inference.softmax import Softmax
from bilm.inference.words import most_rows
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.types import Tensor
from bilm.storage.stored_model import StoredModel
from bilm.storage.stored_weights import StoredWeights
from bilm.support.process import return_freed_memory, share_cores

ROW_STEP = 64  # step between large numbers of rows
JAX_WIDTHS = 16, 24  # numbers of characters for which JAX compiles the encoder


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
    stacks = {"jax": JaxStacks, "torch": TorchStacks}.get(library, KerasStacks)
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


def _softmax(layer: SampledSoftmax) -> Softmax:
    if keras_is_on_cpu():
        return Softmax(*map(np.asarray, (layer.kernel, layer.bias)))
    return KerasSoftmax(layer)


class KerasEncoder:
    """The token encoder, compiled for characters; `few` encodes up to `FEW_WORDS` words."""

    def __init__(self, model: BiLM, few: NumpyEncoder | None = None):
        self._few = few
        self._filters = model.options.filters
        self._alphabet = alphabet_of(model.options)
        self._encode: Callable[[Tensor], Tensor] = model.encoder
        if self._alphabet is not None:
            self._encode = compiled(model.encoder, [keras.KerasTensor((None, None), "int32")])

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        n_tokens = len(ids)
        if self._few is not None and n_tokens <= FEW_WORDS:
            return self._few(ids)
        if self._alphabet is not None:
            n_rows, width = self._padded_shape(*ids.shape)
            # The last column is padding, unless it is the last one of the alphabet.
            ids = np.pad(ids, [(0, n_rows - n_tokens), (0, width - ids.shape[1])], "edge")
        vectors = self._encode(ops.convert_to_tensor(ids))
        return ops.convert_to_numpy(vectors)[:n_tokens]

    def _padded_shape(self, n_tokens: int, width: int) -> tuple[int, int]:
        """Return the number of rows and columns that the library computes for tokens, because it
        compiles code for each. JAX, whose compilation takes longest, gets few of them."""
        is_jax = keras.backend.backend() == "jax"
        if is_jax and self._alphabet is not None:
            widths = [w for w in JAX_WIDTHS if width <= w < self._alphabet.width]
            width = min(widths, default=self._alphabet.width)
        step = ROW_STEP if n_tokens > ROW_STEP or is_jax else min(power_of_two(n_tokens), 8)
        most = most_rows(self._filters, width)
        n_rows = most if is_jax and n_tokens > ROW_STEP else -(-n_tokens // step) * step
        return max(min(n_rows, most), n_tokens), width


class KerasSoftmax(Softmax):
    """The softmax of a biLM on a GPU, which computes losses; NumPy computes the rest."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(*map(ops.convert_to_numpy, (layer.kernel, layer.bias)))
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        self._run = compiled(layer, [hidden, keras.KerasTensor((None,), "int32")])

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        n_rows = power_of_two(max(len(hidden), ROW_STEP))
        hidden_rows = ops.convert_to_tensor(np.resize(hidden, (n_rows, hidden.shape[1])))
        losses = self._run(hidden_rows, ops.convert_to_tensor(np.resize(targets, n_rows)))
        return ops.convert_to_numpy(losses)[: len(hidden)]
