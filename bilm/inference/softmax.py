"""The softmax of a stored language model: the interface that backends implement."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from bilm.layers.types import Tensor

MAX_SCORES = 1 << 24  # most scores, hidden vectors times words, that are computed at a time


def described_dtype(n: int) -> np.dtype:
    """Return the dtype of what a hidden vector predicts, with the `n` likeliest words."""
    return np.dtype(
        [
            ("log", np.float32),  # log-probability of the word that occurs, in nats
            ("entropy", np.float32),  # in nats
            ("rank", np.int32),  # 1 plus the number of words that are likelier than this word
            ("likeliest", np.int32, (n,)),  # ids in descending order of the log-probabilities
            ("likeliest_logs", np.float32, (n,)),
        ]
    )


def described_columns(
    library: ModuleType, scores: Tensor, targets: Tensor, top_k: Callable
) -> dict[str, Tensor]:
    """Return the fields of `described_dtype` from scores, float32 (N, V), which may be changed, and
    ids of the words that occur, int32 (N,); `library` is `numpy` or `keras.ops`. `top_k`: function
    from scores to the largest ones in descending order and their ids, (N, n)."""
    scores -= library.max(scores, axis=1, keepdims=True)
    shares = library.exp(scores)
    total = library.sum(shares, axis=1)
    normalizer = library.log(total)
    shares *= scores
    entropies = normalizer - library.sum(shares, axis=1) / total

    of_targets = library.take_along_axis(scores, targets[:, None], axis=1)
    ranks = 1 + library.sum(scores > of_targets, axis=1)
    logs, words = top_k(scores)
    return {
        "log": of_targets[:, 0] - normalizer,
        "entropy": entropies,
        "rank": ranks,
        "likeliest": words,
        "likeliest_logs": logs - normalizer[:, None],
    }


class Softmax(ABC):
    """The distributions over V words, `n_words`, that hidden vectors, float32 (N, P), predict."""

    def __init__(self, n_words: int):
        self.n_words = n_words

    @abstractmethod
    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the negative log-probability of a word for each hidden vector, in nats: float32
        (N, P), int32 (N,) -> float32 (N,)."""

    def log_probabilities(self, hidden: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the log-probabilities of all words for each hidden vector, float32 (V,)."""
        for part in self._parts(len(hidden)):
            scores = self._scores(hidden[part])
            scores -= scores.max(axis=1, keepdims=True)
            scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
            yield from scores

    def described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
        """Return the description of each distribution: records (N,), see `described_dtype`.
        `targets`: ids of the words that occur, int32 (N,); `n`: at most V."""
        records: np.ndarray = np.empty(len(hidden), described_dtype(n))
        for part in self._parts(len(hidden)):
            for name, values in self._described(hidden[part], targets[part], n).items():
                records[name][part] = values
        return records

    def _parts(self, n_vectors: int) -> Iterator[slice]:
        at_once = max(1, MAX_SCORES // self.n_words)
        for start in range(0, n_vectors, at_once):
            yield slice(start, start + at_once)

    @abstractmethod
    def _scores(self, hidden: np.ndarray) -> np.ndarray:
        """Return the scores of all words, float32 (N, V), in an array that may be changed."""

    @abstractmethod
    def _described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> dict[str, np.ndarray]:
        """Return the fields of `described_dtype`, arrays with N rows."""
