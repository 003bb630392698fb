"""`Memory`: probabilities of words by the similar contexts of a text; and its file, HDF5."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilm.errors import DataError
from bilm.scoring import Logs, PredictedWords, Score
from bilm.storage import StoredModel, attribute, numbers, open_hdf5, save_hdf5
from bilm.studies.gaps.remembered_text import OFFSETS, RememberedText

FLOOR = 0.2  # share of the word frequencies in a prediction


@dataclass(frozen=True)
class Memory:
    """Predicts a word from the places i of a text whose contexts are similar::

        P(w | context) = (1 - FLOOR) * sum of exp(s_i) with w_i = w / sum of exp(s_i) + FLOOR * P(w)
        s_i = sum over offsets k of weights[k] . phi(v at k, u at i + k)
              + weights[-1] . sum over v, u of phi(v, u)

    for words v of the context and u of the text; see `text` for phi. The last sum is over each
    different word v once, and over all words u of the sentence of place i. The context of the view
    `forward` is the words to the left, of `backward` those to the right, of `both` all.

    Fields:
        weights: by view, float (offsets + 1, features).
        shares: share of the biLM in its mixture with the memory by direction, float (directions,).
        exponents: with which a `Filler` compares candidates, float64 (directions + 4,).
        doubt: of a `Filler`, intercept and slope, float64 (2,).
    """

    text: RememberedText
    weights: Mapping[str, np.ndarray]
    shares: np.ndarray
    exponents: np.ndarray
    doubt: np.ndarray

    @property
    def digests(self) -> Set[int]:
        """The digests of the sentences of the text."""
        return self.text.digests

    def log_probabilities(self, tokens: Sequence[str], position: int) -> Logs:
        """Return logarithms of the probability of each word of the vocabulary at a position, by
        view, and of its `frequency`: float64 (V,) each."""
        sentence = self.text.vocabulary.encode(tokens)
        logs = {}
        for view in OFFSETS:
            logs[view] = np.log(self.probabilities(view, sentence, position + 1))
        return logs | {"frequency": np.log(self.text.frequencies)}

    def sentence_log_probabilities(self, tokens: Sequence[str], directions: Iterable[str]) -> Logs:
        """Return the log-probabilities of words by direction, float64 (T + 1,): see `Score`."""
        sentence = self.text.vocabulary.encode(tokens)
        logs = {}
        for direction in directions:
            first = 1 if direction == "forward" else 0  # a direction does not predict its own start
            places = range(first, first + len(tokens) + 1)
            by_place = [self.probabilities(direction, sentence, i)[sentence[i]] for i in places]
            logs[direction] = np.log(by_place)
        return logs

    def mixed(self, score: Score, remembered: Logs | None = None) -> Score:
        """Return the score by the mixture share * P_biLM(w) + (1 - share) * P_memory(w).
        `remembered`: `sentence_log_probabilities` of the sentence; None to compute them. Raises:
        DataError for a model with other directions."""
        self.check_directions(len(score.logs))
        if remembered is None:
            remembered = self.sentence_log_probabilities(score.tokens, score.logs)
        mixture = {}
        for share, (direction, logs) in zip(self.shares, score.logs.items(), strict=True):
            log = np.log(share) + logs
            rest = np.log1p(-share) + remembered[direction]
            mixture[direction] = np.logaddexp(log, rest).astype(np.float32)
        return score._replace(**mixture)

    def check_directions(self, n_directions: int) -> None:
        """Raise DataError for a model with another number of directions than the fitted one."""
        if n_directions != len(self.shares):
            raise DataError(
                f"directions of the model: {n_directions}; expected {len(self.shares)}, as in the "
                "memory"
            )

    def probabilities(self, view: str, sentence: np.ndarray, place: int) -> np.ndarray:
        """Return the probability of each word of the vocabulary at a place of a sentence with its
        marks, which are ids (T + 2,): float64 (V,)."""
        text = self.text
        matches = text.matches(view, sentence, place)
        share = text.place_shares(self.weights[view], matches, text.is_predicted[view])
        by_word = np.bincount(text.ids, share, text.nothing + 1)[:-1]
        probabilities = (1 - FLOOR) * by_word + FLOOR * text.frequencies

        # <UNK> gets half of the probability of rare words.
        probabilities[text.is_rare] /= 2
        probabilities[text.vocabulary.unk] += probabilities[text.is_rare].sum()
        return probabilities

    def save(self, path: str | Path, model: StoredModel) -> None:
        """Write the file of a memory, which was fitted to a model."""
        arrays = {
            **self.weights,
            "shares": self.shares,
            "exponents": self.exponents,
            "doubt": self.doubt,
            "text": self.text.ids.astype(np.int32),
            "sentences": np.array(sorted(self.digests), np.uint64),
        }
        save_hdf5(path, arrays, {"model": _digest(model, self.text.vocabulary.words)})

    @classmethod
    def load(cls, path: str | Path, model: StoredModel, words: Sequence[str]) -> Memory:
        """Read the file; `words` is the vocabulary of the model. Raises: WeightsError if the file
        cannot be read; DataError for the memory of another model or vocabulary."""
        with open_hdf5(path) as file:
            names = (*OFFSETS, "text", "sentences", "shares", "exponents", "doubt")
            arrays = {name: numbers(file, name)[...] for name in names}
            is_same_model = attribute(file, "model") == _digest(model, words)
        if not is_same_model:
            raise DataError(
                f"{path}: memory of another model, whose weights or vocabulary differ from "
                f"those of {model}; write a memory of this model with bilm memory"
            )
        digests = set(arrays["sentences"].tolist())
        text = RememberedText(arrays["text"], PredictedWords(words), digests)
        weights = {view: arrays[view] for view in OFFSETS}
        return cls(text, weights, arrays["shares"], arrays["exponents"], arrays["doubt"])


def _digest(model: StoredModel, words: Sequence[str]) -> str:
    content = "\n".join([model.weights_digest, *words])
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
