"""`ElmoModel` with the interface of the package simple_elmo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import logging

from bilm.data.tokenization import checked_sentences
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import OptionsError
from bilm.storage.stored_model import StoredModel

LAYERS = ("average", "top", "all")


class ElmoModel:
    """A biLM with the methods of the class of this name in simple_elmo.

    Unlike in simple_elmo, the same sentence always gets the same vectors, whatever the padding of
    its batch; `warmup` is accepted and ignored.

    Attributes: `vector_size`, 2 P, and `n_layers`, which includes the token layer; both are None
    before `load`.

    Example:
        from bilm.simple_elmo import ElmoModel
        model = ElmoModel()
        model.load("model.zip")
        vectors = model.get_elmo_vectors([["The", "bank", "closed", "."]])  # 1, 4, 2 P
    """

    def __init__(self) -> None:
        self.vector_size: int | None = None
        self.n_layers: int | None = None
        self.batch_size: int | None = None
        self._embedder: ElmoEmbedder | None = None

    def load(
        self,
        directory: str | Path | StoredModel,
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
    ) -> str:
        """Load a model.

        Args:
            directory: a folder or ZIP archive with `options.json` and HDF5 weights, or anything
                else that `bilm.ElmoEmbedder` takes, such as the folder of a run.
            max_batch_size: stored as `batch_size`; it changes no result.
            limit: accepted and ignored; words are cached until the cache is full.
            full: accepted and ignored; `bilm.load_scorer` predicts words.
        Returns: a message, as in simple_elmo.
        Raises: OptionsError, WeightsError, DataError.
        """
        self.batch_size = max_batch_size
        self._embedder = ElmoEmbedder(directory)
        self.n_layers, self.vector_size = self._embedder.n_layers, self._embedder.dim
        logging.info("%s: loaded, %d layers of %d", directory, self.n_layers, self.vector_size)
        return "The model is now loaded."

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average"
    ) -> np.ndarray:
        """Return the vectors of sentences in one array, padded with zeros.

        Args:
            texts: sentences, each a list of words.
            warmup: accepted and ignored.
            layers: `average`, `top` or `all`.
        Returns: float64 (n, T, 2 P), for `all` (n, layers, T, 2 P); T is the number of words in
            the longest sentence.
        Raises: OptionsError for other `layers`, or before `load`; DataError if a sentence is not a
            list of words.
        """
        embedder = self._loaded(layers)
        sentences = checked_sentences(texts)
        n_words = max(map(len, sentences), default=0)
        lead = (len(sentences), self.n_layers) if layers == "all" else (len(sentences),)
        vectors = np.zeros((*lead, n_words, self.vector_size))
        for padded, found in zip(vectors, embedder.embed_sentences(sentences, layers), strict=True):
            padded[..., : found.shape[-2], :] = found
        return vectors

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average"
    ) -> np.ndarray:
        """Return one vector per sentence: the mean over its words, divided by its L2 norm.

        With `all`, the norm is that of all layers together, as in simple_elmo. A sentence without
        words gets zeros.

        Args: see `get_elmo_vectors`.
        Returns: float64 (n, 2 P), for `all` (n, layers, 2 P).
        Raises: see `get_elmo_vectors`.
        """
        means: np.ndarray = self._loaded(layers).sentence_vectors(texts, layers).astype(np.float64)
        axes = tuple(range(1, means.ndim))
        norms = np.sqrt(np.square(means).sum(axis=axes, keepdims=True))
        return np.divide(means, norms, out=np.zeros_like(means), where=norms > 0)

    def _loaded(self, layers: str) -> ElmoEmbedder:
        if layers not in LAYERS:
            raise OptionsError(f"layers is {layers!r}, expected one of {', '.join(LAYERS)}")
        if self._embedder is None:
            raise OptionsError("no model is loaded: call load with its folder, archive or name")
        return self._embedder
