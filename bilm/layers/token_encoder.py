"""One vector a token: from its characters, or from a table of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import initializers, ops

from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.functional import checked_precision, gather_rows, product
from bilm.layers.highway import Highway
from bilm.layers.weighted import WeightedLayer


@keras.saving.register_keras_serializable(package="bilm")
class TokenEncoder(WeightedLayer):
    """Character CNN, highway stack and projection: the context-independent vector of a token.

    With a table of words the projection reads [word ; highway(CNN)], or the word's vector alone.

    Args:
        projection_dim: width P of a token's vector; there is no projection where the CNN has
            exactly as many filters, unless `always_projects`.
        n_characters, embedding_dim, filters, activation: see `CharacterCNN`; without filters there
            is no CNN.
        n_highway: number of highway layers, 0 for none.
        precision: of the operands of products, `float32` or `bfloat16`.
        words: rows and width of a table of words, or None.
        always_projects: whether there is a projection whatever the widths; always with a table.

    Inputs: integer `(..., C)`; with a table the word's id stands before the characters,
    `(..., 1 + C)`. Returns: float `(..., P)`.
    Stored as `word_embed`, `char_embed`, `CNN*`, `CNN_high_*`, `CNN_proj/W_proj` and
    `CNN_proj/b_proj`.
    Reference: Peters et al. 2018, arXiv:1802.05365.
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
        if not filters and words is None:
            raise ValueError("TokenEncoder needs filters or a table of words, got neither")
        self.projection_dim = projection_dim
        self.n_characters = n_characters
        self.embedding_dim = embedding_dim
        self.filters = [tuple(pair) for pair in filters]
        self.activation = activation
        self.n_highway = n_highway
        self.precision = checked_precision(precision)
        self.n_filters = sum(n for _, n in self.filters)
        self.words = words and tuple(words)
        self.always_projects = always_projects or words is not None
        self.has_projection = self.always_projects or self.n_filters != projection_dim
        self.cnn = self.highway = None
        if not self.filters:
            return
        self.cnn = CharacterCNN(
            n_characters,
            embedding_dim,
            self.filters,
            activation,
            precision,
            dtype=self.dtype_policy,
            name="cnn",
        )
        self.highway = Highway(n_highway, precision, dtype=self.dtype_policy, name="highway")

    def freeze(self) -> None:
        """Make weights constants: see `WeightedLayer.freeze`."""
        super().freeze()
        for layer in filter(None, (self.cnn, self.highway)):
            layer.freeze()

    def build(self, input_shape: Any = None) -> None:
        """Make every variable; no shape of an input is needed."""
        word_dim = 0
        if self.words is not None:
            word_dim = self.words[1]
            self.word_table = self.add_weight(self.words, "glorot_uniform", name="word_table")
        if self.filters:
            self.cnn.build()
            self.highway.build((None, self.n_filters))
        self.kernel = self.bias = None
        if self.has_projection:
            n_features = word_dim + self.n_filters
            self.kernel = self.add_weight(
                (n_features, self.projection_dim),
                initializers.RandomNormal(0.0, n_features**-0.5),
                name="kernel",
            )
            self.bias = self.add_weight((self.projection_dim,), "zeros", name="bias")
        self.built = True

    def call(self, char_ids: Any) -> Any:
        """Encode tokens: integer (..., C) or (..., 1 + C) -> float (..., P)."""
        if self.words is None:
            return self._project(self.highway(self.cnn(char_ids)))
        features = [gather_rows(self.word_table, char_ids[..., 0])]
        if self.filters:
            features.append(self.highway(self.cnn(char_ids[..., 1:])))
        return self._project(ops.concatenate(features, axis=-1))

    def encode_groups(self, groups: Any) -> Any:
        """Encode tokens in groups of like length: integers (U_i, C_i) -> float (sum of U_i, P).

        In all groups but the last each token is followed by padding as wide as the widest filter.
        """
        *padded, rest = groups
        features = [self.cnn(group, padded=True) for group in padded] + [self.cnn(rest)]
        return self._project(self.highway(ops.concatenate(features, axis=0)))

    def _project(self, features):
        if self.kernel is None:
            return features
        return product(features, self.kernel, self.precision) + self.bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Replace the character axis by the vector."""
        return (*input_shape[:-1], self.projection_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "projection_dim": self.projection_dim,
            "n_characters": self.n_characters,
            "embedding_dim": self.embedding_dim,
            "filters": self.filters,
            "activation": self.activation,
            "n_highway": self.n_highway,
            "precision": self.precision,
            "words": self.words,
            "always_projects": self.always_projects,
        }


@keras.saving.register_keras_serializable(package="bilm")
class WordEncoder(WeightedLayer):
    """A table of word vectors, for word input and for cached token vectors.

    Args:
        projection_dim: width P of a word's vector.
        n_words: rows, padding included where there is any.

    Inputs: integer `(...)`. Returns: float `(..., P)`. Stored as `embedding`.
    """

    def __init__(self, projection_dim: int, n_words: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.projection_dim = projection_dim
        self.n_words = n_words

    def build(self, input_shape: Any = None) -> None:
        """Make the table."""
        self.embedding = self.add_weight(
            (self.n_words, self.projection_dim), "glorot_uniform", name="embedding"
        )
        self.built = True

    def call(self, token_ids: Any) -> Any:
        """Look up words: integer (...) -> float (..., P)."""
        return gather_rows(self.embedding, token_ids)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Add the axis of the vector."""
        return (*input_shape, self.projection_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "projection_dim": self.projection_dim,
            "n_words": self.n_words,
        }
