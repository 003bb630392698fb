"""Texts -> vectors as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.embedding.embedder import ElmoEmbedder, Layers, layer_selector
from bilm.errors import DataError, OptionsError
from bilm.extras import needed
from bilm.integrations.shared_models import ModelFiles, shared_embedder

with needed("sklearn", "bilm.ElmoVectorizer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted

POOLS = ("mean", "max")


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer of scikit-learn: texts in, one ELMo vector per text out.

    It learns nothing from the texts. `fit` records a digest of the model's files. Copies and
    pickles hold this digest and the name of the model, no weights: whoever transforms loads the
    model, once per process, and files that have changed since `fit` are an error.

    Args:
        model: a stored biLM: see `ElmoEmbedder`.
        weights: the HDF5 file, where `model` names `options.json`.
        vocab: one word per line, for a model that reads words.
        layers: `average`, `top`, `all` or indices such as `[0, 2]`; several layers are put side by
            side.
        pool: what a text gets of the vectors of its words: their `mean` or `max`.
        normalize: divide each vector by its Euclidean norm.
        tokenizer: turns a text into a list of words; None splits it at blanks. A pickle needs a
            function that can be imported.
        precision: see `ElmoEmbedder`.

    Attributes: `model_digest_`, SHA-256 of the model's files.
    Raises, in `fit` and `transform`: OptionsError, WeightsError, DataError.

    Example:
        pipeline = make_pipeline(bilm.ElmoVectorizer("elmo"), LogisticRegression())
        pipeline.fit(texts, labels)
    """

    def __init__(
        self,
        model: str | Path,
        weights: str | Path | None = None,
        vocab: str | Path | None = None,
        layers: Layers = "average",
        pool: str = "mean",
        normalize: bool = False,
        tokenizer: Callable[[str], Sequence[str]] | None = None,
        precision: str = "float32",
    ):
        self.model, self.weights, self.vocab = model, weights, vocab
        self.layers, self.pool, self.normalize = layers, pool, normalize
        self.tokenizer, self.precision = tokenizer, precision

    def fit(self, X: Iterable[str | Sequence[str]], y: Any = None) -> ElmoVectorizer:
        """Load the model and check the texts; see `transform`."""
        if self.pool not in POOLS:
            raise OptionsError(f"pool is {self.pool!r}, expected one of {', '.join(POOLS)}")
        if isinstance(X, Iterator):  # `transform` would find nothing left
            raise DataError(
                f"X is {_described(X)}, which can be read once; give fit a list of texts"
            )
        files = self._files()
        embedder = shared_embedder(files, self.precision)
        self._n_features_out = int(np.prod(self._shape(embedder)))
        self.model_digest_ = files.digest()
        for _ in self._sentences(X):
            pass
        return self

    def transform(self, X: Iterable[str | Sequence[str]]) -> np.ndarray:
        """Embed texts.

        Args:
            X: texts, each a string or a list of words: a list, a one-dimensional array, or a
                column of a data frame. A text without words gets zeros.
        Returns: float32 (n, features), or the data frame that `set_output` asks for.
        Raises: NotFittedError before `fit`; DataError for anything else than texts; WeightsError if
            the model's files have changed since `fit`; OptionsError if the number of layers has.
        """
        check_is_fitted(self)
        files = self._files()
        files.check(self.model_digest_, "this vectorizer")
        embedder = shared_embedder(files, self.precision)
        n_features = int(np.prod(self._shape(embedder)))
        if n_features != self._n_features_out:
            raise OptionsError(
                f"layers is {self.layers!r}, which gives {n_features:,} features; fit found "
                f"{self._n_features_out:,}: layers changed since fit, so call fit again"
            )
        texts = self._sentences(X)
        vectors = embedder.sentence_vectors(texts, self.layers, self.normalize, self.pool)
        return vectors.reshape(-1, self._n_features_out)

    def _files(self) -> ModelFiles:
        return ModelFiles(self.model, self.weights, self.vocab)

    def _shape(self, embedder: ElmoEmbedder) -> tuple[int, ...]:
        """Return the shape of a text's vectors."""
        empty = np.empty((embedder.n_layers, 0, embedder.dim))
        return tuple(np.delete(layer_selector(self.layers, embedder.n_layers)(empty).shape, -2))

    def _sentences(self, texts: Iterable[str | Sequence[str]]) -> Iterator[list[str]]:
        """Yield the words of each text."""
        is_column = isinstance(texts, Iterable) and not isinstance(texts, str | bytes)
        if not is_column or getattr(texts, "ndim", 1) != 1 or hasattr(texts, "columns"):
            raise DataError(
                f"X is {_described(texts)}, expected a list of texts, a one-dimensional array or "
                "one column of a data frame"
            )
        for number, text in enumerate(texts):
            words = text
            if isinstance(text, str):
                words = text.split() if self.tokenizer is None else self.tokenizer(text)
            elif not isinstance(text, Iterable) or isinstance(text, bytes):
                words = [None]
            words = list(words)
            if not all(isinstance(word, str) for word in words):
                raise DataError(
                    f"text {number} of X is {repr(text)[:60]}, expected a string or a list of words"
                )
            yield words

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _described(texts: Any) -> str:
    """Return what stands in place of texts."""
    if isinstance(texts, str | bytes):
        return f"the string {texts[:40]!r}"
    shape = getattr(texts, "shape", None)
    return f"a {type(texts).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")
