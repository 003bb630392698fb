"""Held-out perplexity of a language model, by its full softmax, for each direction."""

from __future__ import annotations

import math
import os
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bilm.data.dataset import BidirectionalLMDataset, LMDataset, Windows
from bilm.data.shards import Shards, count_tokens
from bilm.data.vocabulary import Vocabulary
from bilm.data.windows import model_batch
from bilm.errors import DataError, OutOfMemoryError
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.options.schema import unexpected
from bilm.support.progress import Progress, progress

N_STEPS = 20  # minimum number of steps in a window
DISCOUNT = 0.75  # D of `bigram_perplexity`
PREDICTIONS_A_WINDOW = 640  # predictions in a window, unless N_STEPS requires more


class Perplexity(NamedTuple):
    """Perplexity of each direction: e to the mean loss per prediction, in nats.

    Fields:
        directions: perplexity by direction.
        mean: e to the mean of the mean losses of all directions.
        n_predictions: number of predictions per direction.
        known: `mean` without the predictions of unknown words; None if it was not computed.
    """

    directions: dict[str, float]
    mean: float
    n_predictions: int
    known: float | None = None

    @classmethod
    def of(cls, sums: dict[str, float], n_predictions: int) -> Perplexity:
        """Compute it from the summed loss of each direction, in nats."""
        means = {name: total / n_predictions for name, total in sums.items()}
        directions = {name: _exp(value) for name, value in means.items()}
        return cls(directions, _exp(float(np.mean(list(means.values())))), n_predictions)

    @classmethod
    def from_record(cls, record: object) -> Perplexity:
        """Restore it from the result of `_asdict` as JSON. Raises: OptionsError."""
        match record:
            case {"directions": dict(each), "mean": mean, "n_predictions": int(n), **more}:
                if each and n > 0 and all(map(_is_perplexity, [mean, *each.values()])):
                    known: Any = more.get("known")
                    return cls(each, mean, n, known)
        raise unexpected("perplexity", record, "directions, mean and n_predictions")

    def __str__(self) -> str:
        return f"{self.mean:,.2f}"


def _is_perplexity(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1


# --- what a perplexity is compared with ---


def text_ids(shards: Shards, vocab: Vocabulary, max_tokens: int | None = None) -> np.ndarray:
    """Return the id of `</S>` and those of all predictions, words and ends of sentences: int64
    (N + 1,).

    Args:
        max_tokens: see `count_tokens`.
    Raises: DataError for an unknown word if the vocabulary lacks `<UNK>`.
    """
    ids = array("i", [vocab.eos])

    def add(words: list[str]) -> None:
        ids.frombytes(vocab.known_ids(words).tobytes())
        ids.append(vocab.eos)

    count_tokens(shards, add, max_tokens)
    return np.array(ids, np.int64)


def unigram_perplexity(ids: np.ndarray, n_words: int) -> float:
    """Return the perplexity of a text, the result of `text_ids`, by the frequencies of words in the
    rest of the text, with 1 added to each count."""
    counts = np.bincount(ids[1:])[ids[1:]]
    return _exp(-float(np.log(counts / (len(counts) - 1 + n_words)).mean()))


def bigram_perplexity(train: np.ndarray, heldout: np.ndarray, vocab: Vocabulary) -> float:
    """Return the perplexity of a text by pairs of words in a training text, with smoothing by
    Pitman-Yor processes (Teh 2006), which is almost that of Kneser and Ney::

        P(w | v) = (max(n(v, w) - D, 0) + D (1 + kinds(v, .)) P(w)) / (n(v) + D)
        P(w) = (max(kinds(., w) - D, 0) + D (1 + kinds(.)) / V) / (kinds(., .) + D)

    where kinds are numbers of different pairs or words. If the training text has no unknown words,
    half of those that occur once are replaced by `<UNK>`. Both texts are results of `text_ids`.
    """
    size, train = vocab.size, train.copy()
    if vocab.unk >= 0 and not (train == vocab.unk).any():
        is_once = np.bincount(train, minlength=size)[train] == 1
        train[np.flatnonzero(is_once)[::2]] = vocab.unk
    pairs, n = np.unique(train[:-1] * size + train[1:], return_counts=True)
    left, right = np.divmod(pairs, size)
    totals, after = np.bincount(left, n, size), np.bincount(left, minlength=size)
    before = np.bincount(right, minlength=size)
    rest = DISCOUNT * (1 + np.count_nonzero(before)) / size
    words = (np.maximum(before - DISCOUNT, 0) + rest) / (len(pairs) + DISCOUNT)
    v, w = heldout[:-1], heldout[1:]
    place = np.searchsorted(pairs, v * size + w)
    counts = np.where(np.append(pairs, -1)[place] == v * size + w, np.append(n, 0)[place], 0)
    rest = DISCOUNT * (1 + after[v]) * words[w]
    logs = np.log((np.maximum(counts - DISCOUNT, 0) + rest) / (totals[v] + DISCOUNT))
    return _exp(-float(logs.mean()))


def unknown_percent(ids: np.ndarray, vocab: Vocabulary) -> float:
    """Return the share of the words that the vocabulary lacks, in percent."""
    return 100 * float((ids == vocab.unk).sum() / (ids != vocab.eos).sum())


# --- perplexity ---


def heldout_dataset(
    filepattern: str | os.PathLike | Shards, vocab: Vocabulary, bidirectional: bool
) -> LMDataset | BidirectionalLMDataset:
    """Return a dataset that reads each sentence of held-out text once, in order."""
    reader = BidirectionalLMDataset if bidirectional else LMDataset
    return reader(filepattern, vocab, test=True)


def heldout_windows(
    dataset: LMDataset | BidirectionalLMDataset,
    batch_size: int,
    stateless: bool = False,
    drop_remainder: bool = False,
) -> Windows:
    """Yield the windows of held-out text; see `perplexity` for the arguments.

    Raises: DataError if there are no predictions.
    """
    if stateless:
        windows = dataset.iter_sentence_batches(batch_size)
    else:
        n_steps = max(N_STEPS, PREDICTIONS_A_WINDOW // batch_size)
        windows = dataset.iter_evaluation(batch_size, n_steps, drop_remainder)
    first = next(windows, None)
    if first is None:
        raise DataError(
            f"{dataset.filepattern}: no predictions to measure: the text is empty or has fewer "
            f"sentences than the {batch_size} rows requested; reduce batch_size"
        )
    yield first
    yield from windows


class Evaluator:
    """Computes the perplexity of a `BiLM` with its softmax; compiled once for all texts. `unk` is
    the id of unknown words; -1 for none."""

    def __init__(self, model: BiLM, unk: int):
        self.model, self.unk = model, unk
        self._run = compiled(self._window, gradients=False)

    def __call__(
        self, windows: Windows, state: Any = None, shown: Progress | None = None
    ) -> Perplexity:
        """Return the perplexity of the text of `heldout_windows`.

        Args:
            windows: windows of rows that continue from one window to the next, except where
                `first` is True.
            state: initial state of the rows; None for zero state.
            shown: counts the predictions per direction.
        """
        sums, n_predictions = dict.fromkeys(self.model.directions, 0.0), 0
        known, n_known = 0.0, 0  # in all directions
        for window in windows:
            mask: Any = window["mask"]
            if state is None or window.get("first"):
                state = self.model.zero_state(len(mask))
            batch = model_batch(window, self.model.options)
            losses, state = self._run(batch, mask, state)
            for name, (loss, loss_of_known) in losses.items():
                sums[name] += float(loss)
                known += float(loss_of_known)
                n_known += int((mask & (batch["targets"][name] != self.unk)).sum())
            n_predictions += (n_new := int(mask.sum()))
            if shown is not None:
                shown.add(n_new)
        of_known = _exp(known / n_known) if n_known else math.nan
        return Perplexity.of(sums, n_predictions)._replace(known=of_known)

    def _window(self, batch, mask, state):
        """Return for each direction the summed loss and that of known words, float32 (), and the
        next state."""
        outputs, state = self.model.windows(self.model.encode(batch), state, mask=mask)
        sums, targets = {}, batch["targets"]
        for name, loss in self.model.losses(outputs, targets).items():
            loss = ops.where(mask, loss, 0.0)
            known = ops.where(targets[name] == self.unk, 0.0, loss)
            sums[name] = ops.sum(loss), ops.sum(known)
        return sums, state


def perplexity(
    model: BiLM,
    dataset: LMDataset | BidirectionalLMDataset,
    batch_size: int,
    stateless: bool = False,
    drop_remainder: bool = False,
    state: Any = None,
) -> Perplexity:
    """Return the perplexity of a language model on held-out text.

    Args:
        model: a `BiLM` with its softmax.
        dataset: reads the text with `test=True`, in the directions of the model.
        batch_size: number of rows. Each sentence is read by the first row that is free, from the
            state after that row's previous sentence, so the result depends on the number of rows.
        stateless: start each sentence from zero state; the result then depends on the sentences
            only.
        drop_remainder: stop at the step at which a row finds no more text, as the reference does.
        state: see `Evaluator`.
    Raises: DataError if there are no predictions; OutOfMemoryError.
    """
    with explaining_memory(dataset.filepattern, "batch_size"):
        windows = heldout_windows(dataset, batch_size, stateless, drop_remainder)
        with progress("evaluating", "predictions per direction") as shown:
            return Evaluator(model, dataset.vocab.unk)(windows, state, shown)


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Turn a failed allocation in the block into an error of one line.

    Args:
        what: the text or folder that was processed.
        smaller: the options whose reduction saves memory.
    Raises: OutOfMemoryError if the block runs out of memory.
    """
    try:
        yield
    except _memory_errors() as error:
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(f"{what}: out of memory ({reason}); reduce {smaller}") from None


def _memory_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of failed allocations, also TensorFlow's if it is in use."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return (MemoryError,)
    return MemoryError, tensorflow.errors.ResourceExhaustedError
