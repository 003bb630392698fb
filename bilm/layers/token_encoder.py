"""Layers that compute the context-independent vector of a token."""

from collections.abc import Sequence
from typing import Any

from keras import initializers, ops

from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.functional import gather_rows, product
from bilm.layers.highway import Highway
from bilm.layers.types import Shape, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import n_filters, part


class TokenEncoder(WeightedLayer):
    """The context-independent vector of a token.

    y = highway(cnn(characters)) W + b,  or with a table of words  [word ; highway(cnn)] W + b

    Args:
        projection_dim: width P of a token's vector. If the CNN has exactly P filters, there is no
            projection, unless `always_projects`.
        n_characters, embedding_dim, filters (may be empty), activation: see `CharacterCNN`.
        n_highway, precision: see `Highway`.
        words: shape (rows, width) of the table of words, if any.

    Inputs: integer `(..., C)`, or `(..., 1 + C)` with a table: the id of the word and then its
    characters. Returns: float `(..., P)`.
    """

    def __init__(
        self,
        projection_dim: int,
        n_characters: int,
        embedding_dim: int,
        filters: Sequence[tuple[int, int]],
        activation: str = "relu",
        n_highway: int = 0,
        precision: str = "float32",
        words: tuple[int, int] | None = None,
        always_projects: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.projection_dim = projection_dim
        self.precision = precision
        self.words = words
        self.always_projects = always_projects
        self.cnn: Any = None
        self.highway: Any = None
        if not filters:
            return
        self.cnn = CharacterCNN(
            n_characters,
            embedding_dim,
            filters,
            activation,
            "float32" if precision == "int8" else precision,
            dtype=self.dtype_policy,
            name="cnn",
        )
        self.highway = Highway(n_highway, precision, dtype=self.dtype_policy, name="highway")

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
