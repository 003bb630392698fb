"""A biLM in NumPy, without Keras and its backends.

It computes a short text sooner than TensorFlow, which must be imported first, and it needs less
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend
from bilm.inference.blas import blas_threads
from bilm.inference.numpy_lstm import NumpyStacks
from bilm.inference.softmax import Softmax, described_columns
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.tensors import n_filters

FEW_WORDS = 64  # most words whose products one thread computes
SCORES_IN_CACHE = 1 << 20  # scores, hidden vectors times words, that fit the cache


class NumpyBackend(Backend):
    """A biLM in float32.

    Args:
        values: the tensors of the model by name; the tensors of the cells are removed.
    """

    def __init__(self, options: ModelOptions, values: dict[str, np.ndarray]):
        table = values.get("embedding")
        super().__init__(options, None if table is None else len(table))
        self._encode: Callable[[np.ndarray], np.ndarray]
        if table is not None:
            self._encode = table.__getitem__
        else:
            self._encode = NumpyEncoder(options, values)
        self._stacks = NumpyStacks.read(options, values.pop)
        if "softmax/b" in values:
            kernel = values["embedding" if options.share_embedding_softmax else "softmax/W"]
            self.softmax = NumpySoftmax(kernel, values["softmax/b"])

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        return self._encode(ids)

    def run_window(
        self, table: np.ndarray, places: dict[str, np.ndarray], fresh: np.ndarray, state: list[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Run a window: see `Backend.run_window`."""
        return self._stacks.run_window(table, places, fresh, state)


def load(stored: StoredModel, precision: str, has_softmax: bool) -> NumpyBackend:
    """Load a model: see `open_backend`."""
    return NumpyBackend(stored.options, dict(stored.values(has_softmax)))


# --- the token encoder ---


class NumpyEncoder:
    """The vector of a token from its characters, its word in a lexicon, or both: see
    `bilm.layers.token_encoder.TokenEncoder`."""

    def __init__(self, options: ModelOptions, values: Mapping[str, np.ndarray]):
        encoder = options.char_cnn or options.lexicon_encoder
        assert encoder is not None
        filters = encoder.filters or ()
        self._words = values.get("word_embed")
        self._characters = values.get("char_embed")
        self._n_filters = n_filters(filters)
        self._activate = ACTIVATIONS[encoder.activation].numpy

        # One matrix per filter width: width * E, filters
        self._kernels: list[np.ndarray] = []
        self._biases: list[np.ndarray] = []
        for i in range(len(filters)):
            kernel = values[f"CNN/W_cnn_{i}"]
            self._kernels.append(kernel.reshape(-1, kernel.shape[-1]))
            self._biases.append(values[f"CNN/b_cnn_{i}"])

        self._highways: list[list[np.ndarray]] = []
        for i in range(encoder.n_highway):
            kinds = "W_carry", "b_carry", "W_transform", "b_transform"
            self._highways.append([values[f"CNN_high_{i}/{kind}"] for kind in kinds])
        self._projection = values.get("CNN_proj/W_proj")
        self._projection_bias = values.get("CNN_proj/b_proj")

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Return the vectors of tokens, float32 (U, P): see `Backend.encode`."""
        n_bytes = 4 * self._n_filters**2 if len(ids) <= FEW_WORDS else math.inf
        with blas_threads(n_bytes):
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
        x = self._activate(np, self._maxima(vectors) + np.concatenate(self._biases))
        for gate, gate_bias, transform, bias in self._highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        return x

    def _maxima(self, vectors: np.ndarray) -> np.ndarray:
        """Return the maximum of each filter over its places: float32 (U, C, E) -> (U, F)."""
        maxima = []
        for kernel in self._kernels:
            width = len(kernel) // vectors.shape[2]
            windows = sliding_window_view(vectors, width, axis=1)  # U, places, E, width
            n_tokens, n_places = windows.shape[:2]
            # One product for the windows of all tokens.
            rows = windows.transpose(0, 1, 3, 2).reshape(-1, len(kernel))
            scores = rows @ kernel
            scores = scores.reshape(n_tokens, n_places, -1)  # U, places, n
            maxima.append(scores.max(axis=1))
        return np.concatenate(maxima, axis=1)


# --- the softmax ---


class NumpySoftmax(Softmax):
    """The softmax: `kernel` float32 (V, P), `bias` float32 (V,)."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray):
        super().__init__(len(kernel))
        self._kernel = kernel
        self._bias = bias

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the negative log-probabilities of words: see `Softmax.losses`."""
        of_targets = np.einsum("np,np->n", hidden, self._kernel[targets]) + self._bias[targets]

        # log sum_v exp(score_v), one slice of the vocabulary after another, which fits the cache
        n_at_once = max(1, SCORES_IN_CACHE // max(1, len(hidden)))
        largest: np.ndarray = np.full(len(hidden), -np.inf, np.float32)
        total: np.ndarray = np.zeros(len(hidden), np.float32)  # of exp(score - largest)
        with blas_threads(math.inf):
            for start in range(0, self.n_words, n_at_once):
                scores = self._scores(hidden, slice(start, start + n_at_once))
                before, largest = largest, np.maximum(largest, scores.max(axis=1))
                scores -= largest[:, None]
                np.exp(scores, out=scores)
                total = total * np.exp(before - largest) + scores.sum(axis=1)
        return largest + np.log(total) - of_targets

    def _scores(self, hidden: np.ndarray, words: slice = slice(None)) -> np.ndarray:
        """Return the score of words for each hidden vector: float32 (N, P) -> (N, V)."""
        scores = hidden @ self._kernel[words].T
        scores += self._bias[words]
        return scores

    def _log_probabilities(self, hidden: np.ndarray) -> np.ndarray:
        with blas_threads(math.inf):
            scores = self._scores(hidden)
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return scores

    def _described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> list[Any]:
        with blas_threads(math.inf):
            scores = self._scores(hidden)
        return described_columns(np, scores, targets, partial(_top_k, n=n))


def _top_k(scores: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n largest scores of each row, in descending order, and their indices: (N, n)."""
    last = min(n, scores.shape[1] - 1)
    words = np.argpartition(-scores, last, axis=1)[:, :n]
    logs = np.take_along_axis(scores, words, axis=1)
    order = np.argsort(-logs, axis=1, kind="stable")
    words = np.take_along_axis(words, order, axis=1)
    return np.take_along_axis(logs, order, axis=1), words
