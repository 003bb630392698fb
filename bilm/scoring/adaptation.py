"""Adaptation to the text that is being scored: dynamic evaluation and a continuous cache.

Both change the probabilities of later words only: each word is scored before the model adapts to
it. Each direction has its own copy of the weights and its own cache, because the directions read a
sentence in opposite orders and would otherwise read words before they are scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, NamedTuple

import keras
import numpy as np

from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.windows import KEY_SUFFIX, Window, distinct_shapes, model_batch
from bilm.errors import BilmError, DataError, NotFiniteError
from bilm.language_model import BiLM
from bilm.scoring.one_direction import flat_state, read_window, with_layers
from bilm.scoring.perplexity import Perplexity, explaining_memory
from bilm.support.progress import progress

N_STEPS = 20  # predictions between two updates
CACHE_WORDS = 2000  # predictions that the cache remembers
THETA = 0.3  # flatness of the cache
LARGEST_LOSS = 500.0  # of a word, in nats; a larger one means that adaptation has diverged


class Adaptation(NamedTuple):
    """How a model adapts to the text that it reads.

    Dynamic evaluation takes a gradient step on the mean loss of every `n_steps` predictions:

        w <- w - rate * g / (sqrt(mean of g * g so far) + 1e-8) + decay * (trained w - w)

    The cache mixes in the words that followed similar contexts, with h the output of the last layer
    and w_i the word that followed h_i:

        p(w) = (1 - cache) * p_model(w) + cache * p_cache(w)
        p_cache(w) proportional to the sum of exp(theta * h . h_i) over i with w_i = w

    Fields:
        rate: learning rate of dynamic evaluation; 0 does not change the weights.
        decay: share of the distance to the trained weights by which each step returns, 0 to 1.
        n_steps: number of predictions between two updates.
        cache: weight of the cache, 0 or more and less than 1; 0 for none.
        theta: flatness of the cache; 0 makes all remembered words equally likely.
        cache_words: maximum number of predictions that the cache remembers.
    References: Krause et al. 2018, arXiv:1709.07432; Grave et al. 2017, arXiv:1612.04426. The mean
        of squared gradients is taken over the text read so far, not over the training text.
    """

    rate: float = 0.0
    decay: float = 0.0
    n_steps: int = N_STEPS
    cache: float = 0.0
    theta: float = THETA
    cache_words: int = CACHE_WORDS

    def check(self) -> None:
        """Raises: ValueError if a value is outside of its range."""
        if not (
            0 <= self.rate < np.inf
            and 0 <= self.decay <= 1
            and 0 <= self.cache < 1
            and 0 <= self.theta < np.inf
        ):
            raise ValueError(
                f"{self}: expected rate >= 0, 0 <= decay <= 1, 0 <= cache < 1 and theta >= 0, all "
                "finite"
            )
        if not all(isinstance(n, Integral) and n >= 1 for n in (self.n_steps, self.cache_words)):
            raise ValueError(f"{self}: expected n_steps and cache_words, integers from 1")


class Cache:
    """The last predictions of one direction: contexts and the words that followed them.

    Args:
        n_words: maximum number of predictions to remember.
        theta: flatness, see `Adaptation`.
    """

    def __init__(self, n_words: int, theta: float):
        self.n_words, self.theta = n_words, theta
        self.hidden: Any = None  # float32 (N, P), the oldest first
        self.words: np.ndarray = np.zeros(0, np.int64)

    def log_probabilities(self, hidden: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the log-probability of each word in nats, float64 (T,), and remember the words.

        Word t is predicted from what was remembered before it, including the words before t in
        this call. A word that the cache does not contain has -inf; the values of an empty cache
        are nan.

        Args:
            hidden: contexts, float (T, P).
            words: ids of the words that follow, integer (T,).
        """
        n_old, n_new = len(self.words), len(words)
        everything = hidden if self.hidden is None else np.concatenate([self.hidden, hidden])
        followed = np.concatenate([self.words, words])
        scores = self.theta * (hidden @ everything.T).astype(np.float64)  # T, N + T
        age = n_old + np.arange(n_new)[:, None] - np.arange(n_old + n_new)
        scores[(age < 1) | (age > self.n_words)] = -np.inf
        same = np.where(followed == words[:, None], scores, -np.inf)
        self.hidden, self.words = everything[-self.n_words :], followed[-self.n_words :]
        with np.errstate(invalid="ignore"):  # -inf - -inf of an empty cache is nan
            return np.logaddexp.reduce(same, axis=1) - np.logaddexp.reduce(scores, axis=1)


def mixed(model: np.ndarray, cache: np.ndarray, weight: float) -> np.ndarray:
    """Mix log-probabilities of the model with those of the cache, which are nan while it is empty.

    Args:
        model, cache: float (T,), in nats.
        weight: share of the cache.
    Returns: float64 (T,).
    """
    empty = np.isnan(cache)
    known = np.where(empty, 0.0, cache)
    return np.where(empty, model, np.logaddexp(np.log1p(-weight) + model, np.log(weight) + known))


class AdaptiveReader:
    """Scores a text from its start to its end and adapts to it.

    The weights of the language model are not changed: each direction has copies of the weights that
    it uses, and as many mean squares of gradients.

    Args:
        model: a `BiLM` with its softmax and without padding.
        adaptation: how to adapt.
    Raises: BilmError for dynamic evaluation on another backend than TensorFlow; ValueError for
        values of `adaptation` outside of their ranges.
    """

    def __init__(self, model: BiLM, adaptation: Adaptation):
        adaptation.check()
        if adaptation.rate and keras.backend.backend() != "tensorflow":
            raise BilmError(
                f"dynamic evaluation requires TensorFlow, found {keras.backend.backend()}; use the "
                "cache only (rate 0), or set KERAS_BACKEND=tensorflow"
            )
        self.model, self.adaptation = model, adaptation
        self._directions = {d: _direction(model, d, adaptation) for d in model.directions}
        self._caches = {
            d: Cache(adaptation.cache_words, adaptation.theta) for d in model.directions
        }

    def read(self, batch: dict[str, Any], state: Any) -> tuple[dict[str, np.ndarray], Any]:
        """Score one window, then adapt to it.

        Args:
            batch: the result of `model_batch` for one row without padding.
            state: the state before the window, for example `model.zero_state(1)`.
        Returns: for each direction log-probabilities in nats, float64 (T,), in its reading order;
            and the next state.
        Raises: NotFiniteError if the model diverges.
        """
        logs, after = {}, {}
        for name, run in self._directions.items():
            losses, hidden, after[name] = run(batch, state[name])
            logs[name] = -np.asarray(keras.ops.convert_to_numpy(losses), np.float64)
            worst = -logs[name].min(initial=0.0)
            if self.adaptation.rate and not worst < LARGEST_LOSS:
                raise NotFiniteError(
                    f"dynamic evaluation: the adapted {name} model has diverged (a word has a loss "
                    f"of {worst:.3g} nats); use a smaller learning rate than "
                    f"{self.adaptation.rate:g}"
                )
            if weight := self.adaptation.cache:
                contexts = keras.ops.convert_to_numpy(hidden)
                found = self._caches[name].log_probabilities(contexts, batch["targets"][name][0])
                logs[name] = mixed(logs[name], found, weight)
        return logs, after


def _direction(model: BiLM, direction: str, adaptation: Adaptation) -> Any:
    """Return a function from batch and state to losses (T,), contexts (T, P) and next state."""
    if adaptation.rate:
        from bilm.scoring.tensorflow_steps import DynamicDirection

        return DynamicDirection(model, direction, adaptation.rate, adaptation.decay)
    from bilm.layers.functional import compiled

    shapes, ids = distinct_shapes(model.options), keras.KerasTensor((None, None), "int32")
    words = model.options.reads_words
    distinct: Any = [keras.KerasTensor(shape, "int32") for shape in ([shapes] if words else shapes)]
    parts = {"distinct": distinct[0] if words else tuple(distinct), "place": ids, "target": ids}
    state = [keras.KerasTensor(part.shape, "float32") for part in flat_state(model, direction)]
    run = compiled(lambda *arguments: read_window(model, direction, *arguments), [parts, state])
    return lambda batch, before: with_layers(run, batch, direction, before)


def adapted_perplexity(
    model: BiLM,
    dataset: LMDataset | BidirectionalLMDataset,
    adaptation: Adaptation,
) -> Perplexity:
    """Return the perplexity of a text that is read once, in one row, by a model that adapts to it.

    The LSTM state starts at zero and is carried from sentence to sentence. Without adaptation the
    result is that of `perplexity` with one row. Do not compare it with the perplexity of a model
    that does not adapt: report both.

    Args:
        model: a `BiLM` with its softmax.
        dataset: reads the text with `test=True`, in the directions of the model.
        adaptation: how to adapt.
    Raises: DataError if there are no predictions; NotFiniteError if the model diverges; BilmError,
        ValueError as `AdaptiveReader` does; OutOfMemoryError.
    """
    sums, n_predictions = dict.fromkeys(model.directions, 0.0), 0
    with (
        explaining_memory(dataset.filepattern, "the model: adaptation copies it per direction"),
        progress("evaluating with adaptation", "predictions per direction") as shown,
    ):
        reader, state = AdaptiveReader(model, adaptation), model.zero_state(1)
        for window in _without_padding(dataset.iter_evaluation(1, adaptation.n_steps)):
            logs, state = reader.read(model_batch(window, model.options), state)
            for name, log in logs.items():
                sums[name] -= float(log.sum())
            n_predictions += (n_new := len(log))
            shown.add(n_new)
    if not n_predictions:
        raise DataError(f"{dataset.filepattern}: the text is empty, expected a sentence")
    return Perplexity.of(sums, n_predictions)


def _without_padding(windows: Iterator[Window]) -> Iterator[Window]:
    """Cut windows of one row after their last prediction."""
    keys = ["token_ids", "tokens_characters", "next_token_id"]
    for window in windows:
        mask: Any = window["mask"]
        n_steps = int(mask.sum())
        cut: Window = {}
        for suffix in KEY_SUFFIX.values():
            for key in (key + suffix for key in keys):
                value: Any = window.get(key)
                if value is not None:
                    cut[key] = value[:, :n_steps]
        yield cut
