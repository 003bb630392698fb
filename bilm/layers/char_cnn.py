"""Character CNN: convolutions of several widths over the characters of a token, max over time."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import initializers, ops

from bilm.activations import ACTIVATIONS
from bilm.layers.functional import product
from bilm.layers.types import Shape, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import Kind, character_cnn


class CharacterCNN(WeightedLayer):
    """Convolutions over the characters of a token, reduced to the maximum over time.

    y_f = activation(max_t sum_k W_f[k] e[t + k] + b_f)

    Args:
        n_characters: number of rows of the character embedding, including padding if any.
        embedding_dim: width E of a character's vector.
        filters: pairs (width in characters, number of filters).
        activation: a key of `bilm.activations.ACTIVATIONS`.

    Inputs: integer `(..., C)`, C at least the width of the widest filter; `padded=True` asserts
        that at least as many padding characters follow each token as the widest filter is wide.
    Returns: float `(..., F)`, F the total number of filters.
    Reference: Kim et al. 2016, arXiv:1508.06615; Jozefowicz et al. 2016, arXiv:1602.02410.
    """

    def __init__(
        self,
        n_characters: int,
        embedding_dim: int,
        filters: Sequence[tuple[int, int]],
        activation: str = "relu",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.n_characters = n_characters
        self.embedding_dim = embedding_dim
        self.filters = filters
        self.activation = activation

    def build(self, input_shape: Shape | None = None) -> None:
        table, *filters = character_cnn(self.n_characters, self.embedding_dim, self.filters)
        self.embedding = self.add_tensor(table, initializers.RandomUniform(-1.0, 1.0))
        self.kernels = []
        self.biases = []
        for spec in filters:
            if spec.row.kind is Kind.BIAS:
                self.biases.append(self.add_tensor(spec, "zeros"))
                continue
            if ACTIVATIONS[self.activation].is_uniform:
                initializer = initializers.RandomUniform(-0.05, 0.05)
            else:
                _, width, dim, _ = spec.shape
                initializer = initializers.RandomNormal(0.0, (width * dim) ** -0.5)
            self.kernels.append(self.add_operand(spec, initializer))
        self.built = True

    def call(self, char_ids: Tensor, padded: bool = False) -> Tensor:
        """Return one feature vector per token: integer (..., C) -> float (..., F)."""
        axes = ops.shape(char_ids)
        flat = ops.reshape(char_ids, (-1, axes[-1]))  # U, C
        characters = ops.take(self.embedding, flat, axis=0)  # U, C, E
        kernels = [ops.squeeze(kernel, 0) for kernel in self.kernels]

        if padded and char_ids.shape[-1] is not None and keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.char_cnn import maximum_over_places

            # Where the widest filter does not fit, narrower filters read only padding.
            maxima = maximum_over_places(characters, kernels, self.precision)  # U, F
        else:
            maxima = self._maxima(characters, kernels)

        # After the maximum, as in bilm-tf: an increasing function keeps the order of the windows.
        activate = getattr(ops, ACTIVATIONS[self.activation].keras)
        features = activate(maxima + ops.concatenate(self.biases))
        return ops.reshape(features, (*axes[:-1], features.shape[-1]))

    def _maxima(self, characters: Tensor, kernels: Sequence[Tensor]) -> Tensor:
        """Return the maximum of every filter: float (U, C, E) -> (U, F). Products, because GPUs
        round the inputs of convolutions more."""
        n_chars = ops.shape(characters)[1]
        by_width = []
        for kernel in kernels:
            # The inputs of the filters at each place, one beside the other
            width, dim, n_filters = kernel.shape
            n_places = n_chars - width + 1
            shifted = [characters[:, k : k + n_places] for k in range(width)]
            windows = ops.concatenate(shifted, axis=2)  # U, C - width + 1, width E
            windows = ops.reshape(windows, (-1, width * dim))
            matrix = ops.reshape(kernel, (width * dim, n_filters))
            scores = product(windows, matrix, self.precision)
            scores = ops.reshape(scores, (-1, n_places, n_filters))  # U, C - width + 1, n
            # `initial` allows no tokens. With keepdims, because TensorFlow otherwise computes a
            # shape for the gradient on the GPU.
            maximum = ops.max(scores, axis=1, keepdims=True, initial=-np.inf)
            by_width.append(ops.squeeze(maximum, axis=1))
        return ops.concatenate(by_width, axis=-1)
