"""Layers that compute the context-independent vector of a token."""

from collections.abc import Sequence
from typing import Any

from keras import initializers, ops

from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.functional import gather_rows, product
from bilm.layers.types import Shape, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import TensorSpec, n_filters, part


class Highway(WeightedLayer):
    """Highway layers over token vectors.

    y = g * relu(W x + b) + (1 - g) * x,  g = sigmoid(W_g x + b_g)

    Inputs: float `(..., D)`. Returns: float `(..., D)`.
    Reference: Srivastava et al. 2015, arXiv:1505.00387.
    """

    def __init__(self, n_layers: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.n_layers = n_layers

    def build(self, input_shape: Shape) -> None:
        """Create a gate and a transform per layer; the gates start nearly closed (bias -2)."""
        self.layers = []  # W_g, b_g, W, b of each
        for i in range(self.n_layers):
            gate, gate_bias, transform, bias = part("highway", {"F": input_shape[-1]}, i=i)
            tensors = (
                self._matrix(gate),
                self.add_tensor(gate_bias, initializers.Constant(-2.0)),
                self._matrix(transform),
                self.add_tensor(bias, "zeros"),
            )
            self.layers.append(tensors)
        self.built = True

    def _matrix(self, spec: TensorSpec) -> Tensor:
        # A Keras initializer returns the same numbers each time, so each matrix has its own.
        normal = initializers.RandomNormal(0.0, spec.shape[0] ** -0.5)
        return self.add_operand(spec, normal)

    def call(self, x: Tensor) -> Tensor:
        """Apply the layers in order: float (..., D) -> (..., D)."""
        for gate, gate_bias, transform, bias in self.layers:
            g = ops.sigmoid(product(x, gate, self.precision) + gate_bias)
            transformed = ops.relu(product(x, transform, self.precision) + bias)
            x = x + g * (transformed - x)
        return x


class TokenEncoder(WeightedLayer):
    """The context-independent vector of a token.

    y = highway(cnn(characters)) W + b,  or with a table of words  [word ; highway(cnn)] W + b

    Args:
        projection_dim: width P of a token's vector. If the CNN has exactly P filters, there is no
            projection, unless `always_projects`.
        cnn, highway: the layers that read characters, if any.
        words: shape (rows, width) of the table of words, if any.

    Inputs: integer `(..., C)`, or `(..., 1 + C)` with a table: the id of the word and then its
    characters. Returns: float `(..., P)`.
    """

    def __init__(
        self,
        projection_dim: int,
        cnn: CharacterCNN | None = None,
        highway: Highway | None = None,
        words: tuple[int, int] | None = None,
        always_projects: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.projection_dim = projection_dim
        self.cnn: Any = cnn
        self.highway: Any = highway
        self.words = words
        self.always_projects = always_projects

    def build(self, input_shape: Shape | None = None) -> None:
        n_features = 0
        if self.words is not None:
            n_words, width = self.words
            (table,) = part("lexicon", {"words": n_words, "width": width})
            self.word_table = self.add_tensor(table, "glorot_uniform")
            n_features += width
        if self.cnn is not None:
            self.cnn.build()
            self.highway.build((None, n_filters(self.cnn.filters)))
            n_features += n_filters(self.cnn.filters)

        self.kernel: Tensor = None
        self.bias: Tensor = None
        if self.always_projects or n_features != self.projection_dim:
            kernel, bias = part("projection", {"features": n_features, "P": self.projection_dim})
            normal = initializers.RandomNormal(0.0, n_features**-0.5)
            self.kernel = self.add_operand(kernel, normal)
            self.bias = self.add_tensor(bias, "zeros")
        self.built = True

    def call(self, char_ids: Tensor) -> Tensor:
        """Encode tokens: integer (..., C) or (..., 1 + C) -> float (..., P)."""
        if self.words is None:
            return self._project(self.highway(self.cnn(char_ids)))
        features = [gather_rows(self.word_table, char_ids[..., 0])]
        if self.cnn is not None:
            features.append(self.highway(self.cnn(char_ids[..., 1:])))
        return self._project(ops.concatenate(features, axis=-1))

    def encode_groups(self, groups: Sequence[Tensor]) -> Tensor:
        """Encode groups of tokens of similar length: integers (U_i, C_i) -> float (sum of U_i, P).
        In all groups except the last, as much padding as the widest filter follows each token."""
        *padded, rest = groups
        features = [self.cnn(group, padded=True) for group in padded] + [self.cnn(rest)]
        return self._project(self.highway(ops.concatenate(features, axis=0)))

    def _project(self, features):
        if self.kernel is None:
            return features
        return product(features, self.kernel, self.precision) + self.bias


class WordEncoder(WeightedLayer):
    """A table of `n_words` vectors, with padding if any, for word input and cached token vectors.

    Inputs: integer `(...)`. Returns: float `(..., P)`.
    """

    def __init__(self, projection_dim: int, n_words: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.projection_dim = projection_dim
        self.n_words = n_words

    def build(self, input_shape: Shape | None = None) -> None:
        (table,) = part("word table", {"words": self.n_words, "P": self.projection_dim})
        self.embedding = self.add_tensor(table, "glorot_uniform")
        self.built = True

    def call(self, token_ids: Tensor) -> Tensor:
        """Look up words: integer (...) -> float (..., P)."""
        return gather_rows(self.embedding, token_ids)
