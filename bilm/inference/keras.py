"""A biLM computed by Keras, compiled where its backend compiles."""

from collections.abc import Callable
from functools import cache, partial

import keras
import numpy as np
from keras import ops

from bilm.inference.backend import Backend, Stacks
from bilm.inference.keras_stacks import (
    JaxStacks,
    KerasStacks,
    TorchStacks,
    power_of_two,
)
from bilm.inference.numpy import FEW_WORDS, NumpyEncoder
from bilm.inference.numpy_lstm import NumpyStacks
from bilm.inference.numpy_policy import numpy_runs_sentences
from bilm.inference.softmax import Softmax, described_columns
from bilm.inference.words import most_rows
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.types import Tensor
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
        softmax=None if model.softmax is None else KerasSoftmax(model.softmax),
        runs_ahead=library == "tensorflow",
    )


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
    """The softmax of a biLM, compiled."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(layer.n_tokens)
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        targets = keras.KerasTensor((None,), "int32")
        self._layer = layer
        self._signature = [hidden, targets]
        self._run_losses = compiled(layer, self._signature)
        self._run_scores = compiled(self._score, [hidden])
        self._compiled_columns = cache(self._compile_columns)

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        n_vectors = len(hidden)
        n_added = padded_rows(n_vectors, ROW_STEP) - n_vectors
        vectors = ops.convert_to_tensor(np.pad(hidden, [(0, n_added), (0, 0)]))
        ids = ops.convert_to_tensor(np.pad(targets, (0, n_added)))
        losses = self._run_losses(vectors, ids)
        return ops.convert_to_numpy(losses)[:n_vectors]

    def _scores(self, hidden: np.ndarray) -> np.ndarray:
        return ops.convert_to_numpy(self._run_scores(ops.convert_to_tensor(hidden)))

    def _described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> dict[str, np.ndarray]:
        run = self._compiled_columns(n)
        columns = run(ops.convert_to_tensor(hidden), ops.convert_to_tensor(targets))
        return {name: ops.convert_to_numpy(column) for name, column in columns.items()}

    def _compile_columns(self, n):
        def columns(hidden, targets):
            return described_columns(ops, self._score(hidden), targets, partial(ops.top_k, k=n))

        return compiled(columns, self._signature)

    def _score(self, hidden):
        return ops.matmul(hidden, ops.transpose(self._layer.kernel)) + self._layer.bias
