"""Results of a language model: probabilities of sentences, the likeliest words at a position."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bilm.errors import DataError
from bilm.evaluation import Perplexity


class Score(NamedTuple):
    """The log-probabilities of a sentence w_1 ... w_T in each direction, in nats.

    Fields:
        forward: float32 (T + 1,), of w_1, ..., w_T, `</S>`, each given what is left of it.
            `forward[i]` belongs to word i of the sentence, counted from 0.
        backward: float32 (T + 1,), of `<S>`, w_1, ..., w_T, each given what is right of it, in
            reading order. `backward[i + 1]` belongs to word i. None for a forward-only model.
    """

    forward: np.ndarray
    backward: np.ndarray | None

    @property
    def n_predictions(self) -> int:
        """The number of predictions in each direction, T + 1."""
        return len(self.forward)

    @property
    def total(self) -> dict[str, float]:
        """The log-probability of the sentence, by direction."""
        return {
            name: float(values.sum(dtype=np.float64))
            for name, values in self._asdict().items()
            if values is not None
        }

    @property
    def mean(self) -> float:
        """The mean log-probability per prediction, over all directions."""
        totals = self.total.values()
        return sum(totals) / len(totals) / self.n_predictions


class Substitute(NamedTuple):
    """A word and its log-probability at a position, in nats."""

    word: str
    log_probability: float


class Substitutes(NamedTuple):
    """The likeliest words at a position, the likeliest first.

    Fields:
        forward: given what is left of the position.
        backward: given what is right of it; None for a forward-only model.
        both: by the product of the two probabilities; `log_probability` is the sum of the two
            logarithms, which is not normalized. None for a forward-only model.
    """

    forward: list[Substitute]
    backward: list[Substitute] | None
    both: list[Substitute] | None


def perplexity_of_scores(scores: Iterable[Score]) -> Perplexity:
    """Return the perplexity of scored sentences, which is `evaluation.perplexity`'s stateless one.

    Raises: DataError if there are no sentences.
    """
    sums: dict[str, float] = {}
    n_predictions = 0
    for found in scores:
        for direction, value in found.total.items():
            sums[direction] = sums.get(direction, 0.0) - value
        n_predictions += found.n_predictions
    if not n_predictions:
        raise DataError("found no sentences, expected at least one")
    return Perplexity.of(sums, n_predictions)
