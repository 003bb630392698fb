"""A biLM computed by Keras, compiled where its backend compiles."""

from collections.abc import Callable
from functools import cache

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
from bilm.inference.numpy_softmax import NumpySoftmax
from bilm.inference.softmax import Softmax, described_dtype
from bilm.inference.words import most_rows
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.layers.types import Tensor
from bilm.storage.stored_model import StoredModel
from bilm.storage.stored_weights import StoredWeights
from bilm.support.process import return_freed_memory, share_cores

ROW_STEP = 64  # step between large numbers of rows
JAX_WIDTHS = 16, 24, 50  # numbers of characters for which JAX compiles the encoder


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
        return NumpySoftmax(*map(np.asarray, (layer.kernel, layer.bias)))
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
        if keras.backend.backend() == "jax":
            assert self._alphabet is not None
            width = next((w for w in JAX_WIDTHS if width <= w), width)
            width = min(width, self._alphabet.width)
        most = most_rows(self._filters, width)
        if keras.backend.backend() == "jax":
            return (ROW_STEP if n_tokens <= ROW_STEP else max(most, n_tokens)), width
        step = ROW_STEP if n_tokens > ROW_STEP else min(power_of_two(n_tokens), 8)
        return max(min(-(-n_tokens // step) * step, most), n_tokens), width


class KerasSoftmax(Softmax):
    """The softmax of a biLM, compiled, on a GPU."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(layer.n_tokens)
        self._layer = layer
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        self._signature = [hidden, keras.KerasTensor((None,), "int32")]
        self._run_scores = compiled(self._score, [hidden])
        self._compiled_columns = cache(self._compile_columns)

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return -self.described(hidden, targets, 0)["log"]

    def described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
        run = self._compiled_columns(n)
        records: np.ndarray = np.empty(len(hidden), described_dtype(n))
        for part in self._parts(len(hidden)):
            n_vectors = len(hidden[part])
            n_added = power_of_two(max(n_vectors, ROW_STEP)) - n_vectors
            columns = run(
                ops.convert_to_tensor(np.pad(hidden[part], [(0, n_added), (0, 0)])),
                ops.convert_to_tensor(np.pad(targets[part], (0, n_added))),
            )
            for name, values in columns.items():
                records[name][part] = ops.convert_to_numpy(values)[:n_vectors]
        return records

    def _scores(self, hidden: np.ndarray) -> np.ndarray:
        return ops.convert_to_numpy(self._run_scores(ops.convert_to_tensor(hidden)))

    def _compile_columns(self, n):
        def columns(hidden, targets):
            """Return the fields of `described_dtype`."""
            scores = self._score(hidden)
            scores -= ops.max(scores, axis=1, keepdims=True)
            shares = ops.exp(scores)
            total = ops.sum(shares, axis=1)
            normalizer = ops.log(total)
            of_targets = ops.take_along_axis(scores, targets[:, None], axis=1)
            logs, words = ops.top_k(scores, n)
            return {
                "log": of_targets[:, 0] - normalizer,
                "entropy": normalizer - ops.sum(shares * scores, axis=1) / total,
                "rank": 1 + ops.sum(scores > of_targets, axis=1),
                "likeliest": words,
                "likeliest_logs": logs - normalizer[:, None],
            }

        return compiled(columns, self._signature)

    def _score(self, hidden):
        return ops.matmul(hidden, ops.transpose(self._layer.kernel)) + self._layer.bias
