"""A biLM in NumPy, without Keras and its backends. It computes a short text sooner than TensorFlow,
which must be imported first, and needs less memory."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend
from bilm.inference.blas import blas_threads
from bilm.inference.numpy_lstm import NumpyStacks
from bilm.inference.softmax import Softmax
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.tensors import n_filters

FEW_WORDS = 64  # most words whose products one thread computes


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
            g = 0.5 + 0.5 * np.tanh(0.5 * (x @ gate + gate_bias))
            x = x + g * (np.maximum(x @ transform + bias, 0) - x)
        return x
