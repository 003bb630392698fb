"""`ElmoModel` with the interface of the package simple_elmo."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import logging

from bilm.data.marks import BOS, EOS, UNK
from bilm.data.tokenization import checked_sentences
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import OptionsError, require_one_of
from bilm.scoring.scorer import Scorer, load_scorer
from bilm.storage.stored_model import StoredModel, open_model


class ElmoModel:
    """A biLM with the methods of simple_elmo's class. Unlike there, vectors do not depend on the
    padding of a batch; `warmup` is accepted and ignored.

    Attributes: `vector_size`, 2 P, and `n_layers`, with the token layer; None before `load`.

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
        self._default_layers = "average"
        self._embedder: ElmoEmbedder | None = None
        self._scorer: Scorer | None = None

    def load(
        self,
        directory: str | Path | StoredModel,
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
        *,
        top: bool = False,
    ) -> str:
        """Load a model.

        Args:
            directory: the folder or ZIP archive of a model, or any model: see `bilm.ElmoEmbedder`.
            max_batch_size: stored as `batch_size`; it changes no result.
            limit: accepted and ignored; words are cached until the cache is full.
            full: also load the softmax, for `get_elmo_substitutes`.
            top: whether the top layer, instead of the average, is the default of `layers`.
        Raises: OptionsError, WeightsError, DataError.
        """
        self.batch_size = max_batch_size
        self._default_layers = "top" if top else "average"
        stored = open_model(directory)
        self._embedder = ElmoEmbedder(stored)
        self.n_layers, self.vector_size = self._embedder.n_layers, self._embedder.dim
        self._scorer = load_scorer(stored) if full else None
        logging.info("%s: loaded, %d layers of %d", directory, self.n_layers, self.vector_size)
        return "The model is now loaded."

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str | None = None
    ) -> np.ndarray:
        """Return the vectors of sentences, padded with zeros: float64 (n, T, 2 P). `layers`:
        `average`, the default, `top`, or `all`, (n, layers, T, 2 P). Raises: OptionsError for other
        `layers`, or before `load`; DataError for other sentences."""
        embedder, layers = self._loaded(layers)
        sentences = list(checked_sentences(texts))
        n_words = max(map(len, sentences), default=0)
        lead = (len(sentences), self.n_layers) if layers == "all" else (len(sentences),)
        padded = np.zeros((*lead, n_words, self.vector_size))  # n, (layers,) T, 2 P
        embedded = embedder.embed_sentences(sentences, layers)
        for row, vectors in zip(padded, embedded, strict=True):
            row[..., : vectors.shape[-2], :] = vectors
        return padded

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str | None = None
    ) -> np.ndarray:
        """Return the mean over the words of each sentence, divided by its L2 norm, that of `all`
        layers together: float64 (n, 2 P) or (n, layers, 2 P). Sentences without words get zeros."""
        embedder, layers = self._loaded(layers)
        means: np.ndarray = embedder.sentence_vectors(texts, layers).astype(np.float64)
        axes = tuple(range(1, means.ndim))
        norms = np.sqrt(np.square(means).sum(axis=axes, keepdims=True))
        return np.divide(means, norms, out=np.zeros_like(means), where=norms > 0)

    def get_elmo_substitutes(
        self, data: Sequence[str | Sequence[str]], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, object]]]:
        """Return the words that the language model predicts at the position of each word.

        Args:
            data: sentences, each a list of words or a string with spaces between words.
            topn: number of words per direction, without `<S>` and `</S>` if `nodelimiters`.
        Returns: for each sentence a list with a dict per word: `word`, which is `<UNK>` if the
            vocabulary lacks it, and `forward` and `backward`, None in a forward-only model, each a
            dict of three lists with the likeliest first: `candidates` (ids), `candidate_words`, and
            `logp`, log-probabilities in nats to four places.
        Raises: OptionsError unless the model was loaded with `full=True`; DataError.
        """
        if self._scorer is None:
            raise OptionsError("the softmax is not loaded: call load(directory, full=True) first")
        left_out = (BOS, EOS) if nodelimiters else ()
        found = []
        for words in checked_sentences(data, str.split):
            logs = self._scorer.log_probabilities(words, range(len(words)))
            entries: list[dict[str, object]] = []
            for word, by_direction in zip(words, logs, strict=True):
                known = word if word in self._scorer.vocabulary else UNK
                entry: dict[str, object] = {"word": known, "backward": None}
                for direction, log in by_direction.items():
                    entry[direction] = _likeliest(log, self._scorer.words, topn, left_out)
                entries.append(entry)
            found.append(entries)
        return found

    def _loaded(self, layers: str | None) -> tuple[ElmoEmbedder, str]:
        """Return the embedder and the layers, by default those of `load`."""
        layers = layers or self._default_layers
        require_one_of("layers", layers, ("average", "top", "all"))
        if self._embedder is None:
            raise OptionsError("no model is loaded: call load with its folder, archive or name")
        return self._embedder, layers


def _likeliest(
    logs: np.ndarray, words: Sequence[str], topn: int, left_out: Sequence[str]
) -> dict[str, list]:
    """Return ids, words and log-probabilities of the `topn` likeliest of (V,) words."""
    order = np.argsort(-logs, kind="stable")[: topn + len(left_out)]
    ids = [i for i in order.tolist() if words[i] not in left_out][:topn]
    return {
        "candidates": ids,
        "candidate_words": [words[i] for i in ids],
        "logp": [round(float(logs[i]), 4) for i in ids],
    }
