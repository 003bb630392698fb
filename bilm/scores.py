"""What a language model answers: probabilities of sentences, the likeliest words of a place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bilm.errors import DataError
from bilm.evaluation import Perplexity


class Score(NamedTuple):
    """What a sentence w_1 ... w_T is worth to each direction, in nats.

    Fields:
        forward: float32 (T + 1,), the log-probabilities of w_1, ..., w_T, `</S>`, each given
            what is left of it. `forward[i]` is that of the sentence's word i, from 0.
        backward: float32 (T + 1,), those of `<S>`, w_1, ..., w_T, each given what is right of it,
            in reading order though they are made from the end. `backward[i + 1]` is that of word
            i. None for a forward-only model.
    """

    forward: np.ndarray
    backward: np.ndarray | None

    @property
    def n_predictions(self) -> int:
        """How many predictions each direction made, T + 1."""
        return len(self.forward)

    @property
    def total(self) -> dict[str, float]:
        """The log-probability of the sentence by direction."""
        return {
            name: float(values.sum(dtype=np.float64))
            for name, values in self._asdict().items()
            if values is not None
        }

    @property
    def mean(self) -> float:
        """The mean log-probability of a prediction, over all directions."""
        totals = self.total.values()
        return sum(totals) / len(totals) / self.n_predictions


class Substitute(NamedTuple):
    """A word and its log-probability in a place, in nats."""

    word: str
    log_probability: float


class Substitutes(NamedTuple):
    """The most likely words in a place, the likeliest first.

    Fields:
        forward: given what is left of the place.
        backward: given what is right of it; None for a forward-only model.
        both: by the product of the two probabilities; `log_probability` is the sum of the two,
            which is not normalized. None for a forward-only model.
    """

    forward: list[Substitute]
    backward: list[Substitute] | None
    both: list[Substitute] | None


def perplexity_of_scores(scores: Iterable[Score]) -> Perplexity:
    """Return the perplexity of scored sentences, which is `evaluation.perplexity`'s stateless one.

    Raises: DataError if there are none.
    """
    sums: dict[str, float] = {}
    n_predictions = 0
    for found in scores:
        for direction, value in found.total.items():
            sums[direction] = sums.get(direction, 0.0) - value
        n_predictions += found.n_predictions
    if not n_predictions:
        raise DataError("no sentence to measure")
    return Perplexity.of(sums, n_predictions)
