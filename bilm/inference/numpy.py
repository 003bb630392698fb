"""A biLM in NumPy, without Keras and its backends.

It computes a short text sooner than TensorFlow, which must be imported first, and it needs less
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend, Run
from bilm.inference.blas import blas_threads
from bilm.inference.numpy_lstm import NumpyStacks, Read
from bilm.inference.softmax import Softmax
from bilm.options.model_options import ModelOptions
from bilm.storage import names
from bilm.storage.stored_model import StoredModel
from bilm.tensors import tensors_of

FEW_WORDS = 64  # most words whose products one thread computes
SCORES_IN_CACHE = 1 << 20  # scores, hidden vectors times words, that fit the cache


class NumpyBackend(Backend):
    """A biLM in float32.

    Args:
        options: of the model.
        read: returns the tensor of a name.
        n_words: size of the vocabulary of a model that reads words or has a softmax.
        has_softmax: whether to read the softmax.
    """

    def __init__(
        self, options: ModelOptions, read: Read, n_words: int | None, has_softmax: bool = False
    ):
        super().__init__(options, n_words if options.reads_words else None)
        self._encode: Callable[[np.ndarray], np.ndarray]
        if options.reads_words:
            table = read("embedding")
            self._encode = table.__getitem__
        else:
            self._encode = NumpyEncoder(options, read)
        self._stacks = NumpyStacks.read(options, read)
        if has_softmax:
            kernel = table if options.share_embedding_softmax else read("softmax/W")
            self.softmax = NumpySoftmax(kernel, read("softmax/b"))

    @classmethod
    def unsupported(cls, precision: str, has_softmax: bool) -> str | None:
        """Return what is not computed: see `Backend.unsupported`."""
        if precision != "float32":
            return f"computes in float32, not in {precision}; use the backend keras"
        return None

    @classmethod
    def open(cls, stored: StoredModel, precision: str, has_softmax: bool) -> NumpyBackend:
        """Load a model: see `Backend.open`."""
        options = stored.options
        sources = [(stored.tensors, names.is_bilm)]
        n_words = names.n_words(stored.tensors) if options.reads_words else None
        if has_softmax:
            softmax = stored.require_softmax()
            sources.append((softmax.tensors, names.is_softmax))
            n_words = softmax.n_words

        specs = {spec.name: spec for spec in tensors_of(options, n_words, has_softmax)}
        readers: dict[str, Callable[[], np.ndarray]] = {}
        with ExitStack() as files:
            for tensors, is_part in sources:
                read = files.enter_context(tensors.opened())
                for name, stored_name in names.found_names(specs, tensors, is_part).items():
                    where = f"{tensors.source}: {stored_name}"
                    readers[name] = partial(_checked, read, stored_name, specs[name], where)
            return cls(options, lambda name: readers[name](), n_words, has_softmax)

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        return self._encode(ids)

    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows: see `Backend.begin`."""
        return self._stacks.begin(table, n_rows)


BACKEND = NumpyBackend


def _checked(read: Callable[[str], Any], stored_name: str, spec: Any, where: str) -> np.ndarray:
    return names.checked(read(stored_name), spec, False, where)


# --- the token encoder ---


class NumpyEncoder:
    """The vector of a token from its characters, its word in a lexicon, or both: see
    `bilm.layers.token_encoder.TokenEncoder`."""

    def __init__(self, options: ModelOptions, read: Read):
        encoder = options.char_cnn or options.lexicon_encoder
        assert encoder is not None
        exists = {spec.name for spec in tensors_of(options)}
        self._words = read("word_embed") if "word_embed" in exists else None
        self._characters = read("char_embed") if "char_embed" in exists else None

        # One matrix per filter width: width * E, filters
        kernels = [read(f"CNN/W_cnn_{i}") for i in range(len(encoder.filters or ()))]
        self._kernels = [kernel.reshape(-1, kernel.shape[-1]) for kernel in kernels]
        self._biases = [read(f"CNN/b_cnn_{i}") for i in range(len(kernels))]
        self._n_filters = sum(map(len, self._biases))
        self._activate = ACTIVATIONS[encoder.activation].numpy

        kinds = "W_carry", "b_carry", "W_transform", "b_transform"
        self._highways = [
            [read(f"CNN_high_{i}/{kind}") for kind in kinds] for i in range(encoder.n_highway)
        ]
        self._projection: tuple[np.ndarray, np.ndarray] | None = None
        if "CNN_proj/W_proj" in exists:
            self._projection = read("CNN_proj/W_proj"), read("CNN_proj/b_proj")

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Return the vectors of tokens, float32 (U, P): see `Backend.encode`."""
        with blas_threads(4 * self._n_filters**2 if len(ids) <= FEW_WORDS else math.inf):
            features = []
            if self._words is not None:
                features.append(self._words[ids[:, 0]])
                ids = ids[:, 1:]
            if self._characters is not None:
                features.append(self._cnn(self._characters[ids]))
            x = np.concatenate(features, axis=1)
            if self._projection is None:
                return x
            kernel, bias = self._projection
            return x @ kernel + bias

    def _cnn(self, vectors: np.ndarray) -> np.ndarray:
        """Encode tokens from the vectors of their characters: float32 (U, C, E) -> (U, F)."""
        x = self._activate(np, self._maxima(vectors) + np.concatenate(self._biases))
        for gate, gate_bias, transform, bias in self._highways:
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        return x

    def _maxima(self, vectors: np.ndarray) -> np.ndarray:
        """Return the maximum of each filter over its places: float32 (U, C, E) -> (U, F)."""
        dim, maxima = vectors.shape[2], []
        for kernel in self._kernels:
            windows = np.lib.stride_tricks.sliding_window_view(vectors, len(kernel) // dim, axis=1)
            n_tokens, n_places = windows.shape[:2]
            # One product for the windows of all tokens.
            rows = windows.transpose(0, 1, 3, 2).reshape(n_tokens * n_places, len(kernel))
            maxima.append((rows @ kernel).reshape(n_tokens, n_places, -1).max(axis=1))
        return np.concatenate(maxima, axis=1)


# --- the softmax ---


class NumpySoftmax(Softmax):
    """The softmax: `kernel` float32 (V, P), `bias` float32 (V,)."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray):
        super().__init__(len(kernel))
        self._kernel, self._bias = kernel, bias

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the negative log-probabilities of words: see `Softmax.losses`."""
        of_targets = np.einsum("np,np->n", hidden, self._kernel[targets]) + self._bias[targets]
        return self._log_normalizer(hidden) - of_targets

    def _log_normalizer(self, hidden: np.ndarray) -> np.ndarray:
        """Return log sum_v exp(score_v), one slice of the vocabulary after another, which fits the
        cache: float32 (N, P) -> (N,)."""
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
        return largest + np.log(total)

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
            scores = self._scores(hidden)  # N, V
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        total = shares.sum(axis=1)
        normalizer = np.log(total)
        shares *= scores
        entropies = normalizer - shares.sum(axis=1) / total

        of_targets = np.take_along_axis(scores, targets[:, None], axis=1)
        ranks = 1 + (scores > of_targets).sum(axis=1)
        words = _largest(scores, n)
        logs = np.take_along_axis(scores, words, axis=1) - normalizer[:, None]
        return [of_targets[:, 0] - normalizer, entropies, ranks, words, logs]


def _largest(scores: np.ndarray, n: int) -> np.ndarray:
    """Return the indices of the n largest scores of each row, in descending order: (N, n)."""
    n_words = scores.shape[1]
    words = np.argpartition(-scores, min(n, n_words - 1), axis=1)[:, :n]
    order = np.argsort(-np.take_along_axis(scores, words, axis=1), axis=1, kind="stable")
    return np.take_along_axis(words, order, axis=1)
