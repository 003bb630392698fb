"""Held-out perplexity: the full softmax, every prediction counted, a direction at a time."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data.bidirectional import BidirectionalLMDataset
from bilm.data.dataset import LMDataset
from bilm.data.shards import Shards
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import model_batch
from bilm.errors import DataError
from bilm.language_model import BiLM
from bilm.memory import explaining_memory
from bilm.progress import progress
from bilm.schema import unexpected

N_STEPS = 20
PREDICTIONS_A_WINDOW = 640


class Perplexity(NamedTuple):
    """Perplexity a direction, e to the mean loss of a prediction in nats.

    Fields:
        directions: perplexity by direction.
        mean: e to the mean of the directions' mean losses.
        n_predictions: how many predictions each direction made.
    """

    directions: dict[str, float]
    mean: float
    n_predictions: int

    @classmethod
    def of(cls, sums: dict[str, float], n_predictions: int) -> Perplexity:
        """Make it from each direction's summed loss in nats."""
        means = {name: total / n_predictions for name, total in sums.items()}
        directions = {name: _exp(value) for name, value in means.items()}
        return cls(directions, _exp(float(np.mean(list(means.values())))), n_predictions)

    @classmethod
    def from_record(cls, record: object) -> Perplexity:
        """Make it from what `_asdict` gave and a file has kept. Raises: OptionsError."""
        match record:
            case {"directions": dict(directions), "mean": mean, "n_predictions": int(n)} if (
                directions and n > 0 and all(map(_is_perplexity, [mean, *directions.values()]))
            ):
                return cls(directions, mean, n)
        raise unexpected("perplexity", record, "directions, mean and n_predictions")

    def __str__(self) -> str:
        parts = [f"{name} {value:,.2f}" for name, value in self.directions.items()]
        return f"{', '.join(parts)}, mean {self.mean:,.2f}"


def _is_perplexity(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1


def heldout_dataset(
    filepattern: str | os.PathLike | Shards, vocab: Vocabulary, bidirectional: bool
) -> LMDataset | BidirectionalLMDataset:
    """Return the reader of held-out text, each sentence once and in order."""
    reader = BidirectionalLMDataset if bidirectional else LMDataset
    return reader(filepattern, vocab, test=True)


class Evaluator:
    """Measures a `BiLM` that has its softmax; compiled once, whatever is measured."""

    def __init__(self, model: BiLM):
        self.model = model
        self._run = tf.function(self._window, autograph=False, reduce_retracing=True)

    def __call__(
        self,
        dataset: LMDataset | BidirectionalLMDataset,
        batch_size: int,
        stateless: bool = False,
        drop_remainder: bool = False,
        state: Any = None,
        total: int | None = None,
    ) -> Perplexity:
        """Measure: see `perplexity`."""
        if stateless and (drop_remainder or state is not None):
            raise ValueError("stateless=True starts each sentence afresh: no state, no remainder")
        if stateless:
            batches = dataset.iter_sentence_batches(batch_size)
        else:
            n_steps = max(N_STEPS, PREDICTIONS_A_WINDOW // batch_size)
            batches = dataset.iter_evaluation(batch_size, n_steps, drop_remainder)
        state = None if stateless else state
        sums, n_predictions = dict.fromkeys(self.model.directions, 0.0), 0
        with progress("evaluating", "predictions per direction", total) as shown:
            for window in batches:
                mask = window["mask"]
                if state is None or window.get("first"):
                    state = self.model.zero_state(len(mask))
                losses, state = self._run(model_batch(window, self.model.options), mask, state)
                for name, loss in losses.items():
                    sums[name] += float(loss)
                n_predictions += (n_new := int(mask.sum()))
                shown.add(n_new)
        if not n_predictions:
            raise DataError(
                f"{dataset.filepattern}: no prediction to measure; the text is empty or has fewer "
                f"sentences than the {batch_size} rows requested"
            )
        return Perplexity.of(sums, n_predictions)

    def _window(self, batch, mask, state):
        """Return each direction's summed loss over the mask, float32 (), and the next state."""
        outputs, state = self.model.windows(self.model.encode(batch), state, mask=mask)
        losses = self.model.losses(outputs, batch["targets"])
        sums = {name: tf.reduce_sum(tf.where(mask, loss, 0.0)) for name, loss in losses.items()}
        return sums, state


def perplexity(
    model: BiLM,
    dataset: LMDataset | BidirectionalLMDataset,
    batch_size: int,
    stateless: bool = False,
    drop_remainder: bool = False,
    state: Any = None,
    total: int | None = None,
) -> Perplexity:
    """Measure a language model on text that it was not trained on.

    Args:
        model: a `BiLM` with its softmax.
        dataset: reads the text with `test=True`, in one direction or both as the model does.
        batch_size: rows. A sentence goes to the row that runs out first, and finds there the
            state that the sentence before it left: the figure depends on the number of rows.
        stateless: start each sentence from zero state; the figure then depends on nothing else.
        drop_remainder: stop at the step at which a row finds no more text, as the reference does.
        state: where the rows start, as `BiLM.zero_state` gives it; None for a fresh start.
        total: how many predictions a direction will make, from which the time left is told.
    Raises: DataError if there is nothing to predict, OutOfMemoryError.
    """
    with explaining_memory(dataset.filepattern, "batch_size"):
        return Evaluator(model)(dataset, batch_size, stateless, drop_remainder, state, total)


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
