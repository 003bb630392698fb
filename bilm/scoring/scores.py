"""The results of a `Scorer`: probabilities of sentences, predicted distributions, substitutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

Logs: TypeAlias = dict[str, np.ndarray]  # log-probabilities, by direction or view


class Substitute(NamedTuple):
    """A word and its log-probability at a position, in nats."""

    word: str
    log_probability: float


class Substitutes(NamedTuple):
    """The likeliest words at a position, the likeliest first.

    Fields:
        forward: given the words to the left of the position.
        backward: given the words to its right; None for a forward-only model.
        both: given both sides, by P(word | left) P(word | right) / P(word), normalized; see
            `PredictedWords.both_sides`. None for a forward-only model.
        is_known: whether the vocabulary contains the word at the position. The lists never contain
            a word that the vocabulary lacks.
    """

    forward: list[Substitute]
    backward: list[Substitute] | None
    both: list[Substitute] | None
    is_known: bool


class Predicted(NamedTuple):
    """The distribution over the vocabulary and its marks that a direction predicts at a place.

    Fields: `entropy`, in nats; `rank`, 1 plus the number of words that are likelier than the word
        at the place; `likeliest` words, in descending order.
    """

    entropy: float
    rank: float
    likeliest: list[Substitute]

    @classmethod
    def of(cls, records: np.ndarray, words: Sequence[str]) -> list[Predicted]:
        """Return the distributions of records (N,) of `described_dtype`; `words` by id."""
        predicted = []
        for _, entropy, rank, ids, logs in records.tolist():
            likeliest = [words[i] for i in ids]
            predicted.append(cls(entropy, rank, list(map(Substitute, likeliest, logs.tolist()))))
        return predicted


class Score(NamedTuple):
    """The log-probabilities of a sentence w_1 ... w_T in each direction, in nats.

    The arrays have T + 1 entries each, one per prediction. For word `i` of the sentence, counted
    from 0, read `tokens[i]`, `is_known[i]`, `forward[i]` and `backward[i + 1]`.

    Fields:
        forward: float32 (T + 1,): each word and then `</S>`, given the words to its left.
        backward: float32 (T + 1,): `<S>` and then each word, given the words to its right. None
            for a forward-only model.
        tokens: the words of the sentence, T of them.
        is_known: boolean (T + 1,): whether the vocabulary contains the word. The value of a word
            that it lacks is the log-probability of `<UNK>`, which all such words share; do not
            compare it with the value of a known word. The last entry, for `</S>`, is True.
        predicted: for each direction, what it predicts at the T + 1 places of its array; None
            unless it was requested.
    """

    forward: np.ndarray
    backward: np.ndarray | None
    tokens: list[str]
    is_known: np.ndarray
    predicted: dict[str, list[Predicted]] | None = None

    @property
    def unknown(self) -> list[str]:
        """The words that the vocabulary lacks."""
        words = zip(self.tokens, self.is_known[:-1], strict=True)
        return [word for word, is_known in words if not is_known]

    @property
    def n_predictions(self) -> int:
        """The number of predictions in each direction, T + 1."""
        return len(self.forward)

    @property
    def total(self) -> dict[str, float]:
        """The log-probability of the sentence, by direction."""
        return {name: float(log.sum(dtype=np.float64)) for name, log in self.logs.items()}

    @property
    def logs(self) -> Logs:
        """The arrays by direction."""
        arrays = {"forward": self.forward, "backward": self.backward}
        return {name: array for name, array in arrays.items() if array is not None}

    @property
    def mean(self) -> float:
        """The mean log-probability per prediction, over all directions."""
        totals = self.total.values()
        return sum(totals) / len(totals) / self.n_predictions
