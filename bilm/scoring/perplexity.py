"""Perplexity of held-out text, for each direction, also with a second model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np
from absl import logging

from bilm.data.shards import sentence_digest
from bilm.data.vocabulary import UNK
from bilm.errors import DataError
from bilm.options.schema import unexpected
from bilm.scoring.scores import Logs, Score
from bilm.storage.stored_model import StoredModel
from bilm.support.entry_points import entry_points_of, loaded

# The studies add the one entry point of this group, an object with the method `load`.
SECOND_MODELS = "bilm.second_models"


class Perplexity(NamedTuple):
    """Perplexity of each direction: e to the mean loss per prediction, in nats.

    Fields: `mean`, e to the mean of the mean losses of all directions; `n_predictions` per
        direction; `known`, `mean` without unknown words, or None if it was not computed.
    """

    directions: dict[str, float]
    mean: float
    n_predictions: int
    known: float | None = None

    @classmethod
    def from_record(cls, record: object) -> Perplexity:
        """Restore it from the result of `_asdict` as JSON. Raises: OptionsError."""
        match record:
            case {"directions": dict(directions), "mean": mean, "n_predictions": int(n), **more}:
                values = [mean, *directions.values()]
                are_valid = [isinstance(value, int | float) and value >= 1 for value in values]
                if directions and n > 0 and all(are_valid):
                    known = more.get("known")
                    known = known if isinstance(known, float) else None
                    return cls(directions, mean, n, known)
        raise unexpected("perplexity", record, "directions, mean and n_predictions")

    def __str__(self) -> str:
        return f"{self.mean:,.2f}"


class LossCounter:
    """Sums the losses of predictions, in nats: of each direction, and of known words."""

    def __init__(self) -> None:
        self.n_sentences = 0  # of `add`
        self._losses: dict[str, float] = defaultdict(float)  # by direction
        self._n_predictions: Counter[str] = Counter()  # by direction
        self._known_loss = 0.0  # of known words and marks, in all directions
        self._n_known = 0

    def add_losses(self, direction: str, losses: np.ndarray, is_known: np.ndarray) -> None:
        """Count predictions of a direction: losses float (n,), and whether each is of a known word
        or a mark, boolean (n,)."""
        known = losses[is_known]
        self._losses[direction] += float(losses.sum(dtype=np.float64))
        self._n_predictions[direction] += len(losses)
        self._known_loss += float(known.sum(dtype=np.float64))
        self._n_known += len(known)

    def add(self, score: Score) -> None:
        """Count the predictions of a sentence."""
        self.n_sentences += 1
        unknown = {UNK, *score.unknown}
        is_known = [word not in unknown for word in score.tokens]
        predictions = {"forward": [*is_known, True], "backward": [True, *is_known]}  # and marks
        for direction, logs in score.logs.items():
            self.add_losses(direction, -logs, np.array(predictions[direction]))

    def perplexity(self) -> Perplexity:
        """Return the perplexity. Raises: DataError if there are no predictions."""
        if not self._losses:
            raise DataError("found no sentences, expected at least one")
        means = {name: loss / self._n_predictions[name] for name, loss in self._losses.items()}
        directions = {name: _exp(mean) for name, mean in means.items()}
        known = _exp(self._known_loss / self._n_known) if self._n_known else math.nan
        n_predictions = max(self._n_predictions.values())  # the same in all directions
        return Perplexity(directions, _exp(float(np.mean([*means.values()]))), n_predictions, known)


class SecondModel(Protocol):
    """A model that predicts the words of the biLM's vocabulary from a text, such as a memory of the
    training text."""

    @property
    def digests(self) -> Set[int]:
        """The digests of the sentences of its text, see `bilm.data.sentence_digest`."""

    def mixed(self, score: Score, remembered: Logs | None = None) -> Score:
        """Return the score by the mixture of the biLM, whose score is given, and this model.
        `remembered`: this model's log-probabilities of the sentence; None to compute them."""


def load_second_model(path: str, model: StoredModel, words: Sequence[str]) -> SecondModel:
    """Read a file by the entry point for such files; `words` is the vocabulary of the biLM, in the
    order of ids. Raises: BilmError."""
    return loaded(entry_points_of(SECOND_MODELS)[0]).load(path, model, words)


class TextLosses:
    """Sums the losses of the scored sentences of a text: of the biLM alone and, if there is a
    memory, of its mixture with the memory."""

    def __init__(self, memory: SecondModel | None = None):
        self._memory = memory
        self._alone, self._mixed = LossCounter(), LossCounter()
        # The sentences that the memory does not contain
        self._new_alone, self._new_mixed = LossCounter(), LossCounter()

    def add(self, score: Score, remembered: Logs | None = None) -> Score:
        """Count a sentence; return its score, by the mixture if any: see `SecondModel.mixed`."""
        self._alone.add(score)
        if self._memory is None:
            return score
        mixed = self._memory.mixed(score, remembered)
        self._mixed.add(mixed)
        if sentence_digest(score.tokens) not in self._memory.digests:
            self._new_alone.add(score)
            self._new_mixed.add(mixed)
        return mixed

    @property
    def left_out(self) -> Set[int]:
        """The digests of the sentences that perplexities leave out: those that the memory contains,
        unless it contains all of the text."""
        if self._memory is None or not self._new_alone.n_sentences:
            return frozenset()
        return self._memory.digests

    def perplexities(self, text: str) -> tuple[Perplexity, Perplexity | None]:
        """Return the perplexity of the biLM alone, and of the mixture, and log the number of the
        sentences that the memory contains; `text` is the name of all. Raises: DataError
        without sentences."""
        alone = self._alone.perplexity()
        if self._memory is None:
            return alone, None
        mixed = self._mixed.perplexity()
        n_sentences = self._alone.n_sentences
        n_new = self._new_alone.n_sentences
        if n_new < n_sentences:
            logging.warning(
                "%s: the text of the memory contains %d of the %d sentences; with them, perplexity "
                "is %s with memory and %s without; %s", text, n_sentences - n_new, n_sentences,
                mixed, alone, "other figures leave them out" if n_new else "use other text",
            )  # fmt: skip
        if n_new:
            return self._new_alone.perplexity(), self._new_mixed.perplexity()
        return alone, mixed


def _exp(loss: float) -> float:
    """Return e to a mean loss in nats; infinity if it exceeds the range of floats."""
    return math.exp(loss) if loss < 700 else math.inf
