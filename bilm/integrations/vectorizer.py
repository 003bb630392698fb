"""`ElmoVectorizer`, a transformer for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bilm.data.tokenization import checked_sentences, described
from bilm.embedding.collecting import Layers
from bilm.embedding.shared import ModelFiles, shared_embedder
from bilm.errors import DataError, OptionsError, require_one_of
from bilm.support.imports import needed

with needed("sklearn", "bilm.ElmoVectorizer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted

POOLS = ("mean", "max")
SETTINGS = ("layers", "pool", "normalize", "precision")  # must not change between fit and transform


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer from texts to one ELMo vector per text.

    `fit` records a digest of the files of the model and checks the texts; it does not train. Copies
    and pickles contain the digest and the name of the model and no weights. `transform` loads the
    model, once per process, and raises an error if its files have changed since `fit`.

    Args:
        model: a stored biLM: see `ElmoEmbedder`.
        weights: the HDF5 file, if `model` is an `options.json`.
        vocab: file with one word per line, for a model that reads words.
        layers: `average`, `top`, `all` or indices such as `[0, 2]`; several are concatenated.
        pool: how the vectors of the words of a text are combined: `mean` or `max`.
        normalize: whether to divide each vector by its Euclidean norm.
        tokenizer: function from a text to a list of words; None splits at Unicode white space, as
            `str.split` does. Pickling requires a function that can be imported.
        precision: see `ElmoEmbedder`.

    Attributes: `model_digest_`, SHA-256 of the files of the model.
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
        self.model = model
        self.weights = weights
        self.vocab = vocab
        self.layers = layers
        self.pool = pool
        self.normalize = normalize
        self.tokenizer = tokenizer
        self.precision = precision

    def fit(self, X: Iterable[str | Sequence[str]], y: object = None) -> ElmoVectorizer:
        """Load the model and check the texts; see `transform`."""
        require_one_of("pool", self.pool, POOLS)
        if isinstance(X, Iterator):  # `transform` could not read it again
            raise DataError(
                f"X is {described(X)}, which can be read only once; pass a list of texts to fit"
            )
        files = ModelFiles(self.model, self.weights, self.vocab)
        self.model_digest_ = files.digest()
        embedder = shared_embedder(files, self.model_digest_, self.precision)
        self._n_features_out = embedder.selection(self.layers).n_features
        self._fitted_settings = self._settings()
        for _ in self._sentences(X):
            pass
        return self

    def transform(self, X: Iterable[str | Sequence[str]]) -> np.ndarray:
        """Embed texts.

        Args:
            X: list, one-dimensional array or data frame column of texts, each a string or a list of
                words. A text without words becomes a zero vector.
        Returns: float32 (n, features), or the data frame requested by `set_output`.
        Raises: NotFittedError before `fit`; DataError if X does not contain texts; WeightsError if
            the files of the model have changed since `fit`; OptionsError if `layers`, `pool`,
            `normalize`, `precision` or `tokenizer` have changed since `fit`.
        """
        check_is_fitted(self)
        files = ModelFiles(self.model, self.weights, self.vocab)
        files.check(self.model_digest_, "this vectorizer")
        for name, value in self._settings().items():
            if value != self._fitted_settings[name]:
                raise OptionsError(
                    f"{name} is {value}, but was {self._fitted_settings[name]} in fit; "
                    "call fit again"
                )
        embedder = shared_embedder(files, self.model_digest_, self.precision)
        texts = self._sentences(X)
        vectors = embedder.sentence_vectors(texts, self.layers, self.normalize, self.pool)
        return vectors.reshape(-1, self._n_features_out)

    def _settings(self) -> dict[str, object]:
        """Return the parameters that determine the features of a text: the `repr` of each, because
        a list may be changed in place, but the tokenizer itself, whose `repr` is not stable."""
        settings = {name: repr(getattr(self, name)) for name in SETTINGS}
        return {**settings, "tokenizer": self.tokenizer}

    def _sentences(self, texts: Iterable[str | Sequence[str]]) -> Iterator[list[str]]:
        return checked_sentences(texts, self.tokenizer or str.split, "text", "X")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
