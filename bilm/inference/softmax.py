"""The softmax of a stored language model: the interface that backends implement."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

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

    @abstractmethod
    def described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
        """Return the description of each distribution: records (N,), see `described_dtype`.
        `targets`: ids of the words that occur, int32 (N,); `n`: at most V."""

    def _parts(self, n_vectors: int) -> Iterator[slice]:
        at_once = max(1, MAX_SCORES // self.n_words)
        for start in range(0, n_vectors, at_once):
            yield slice(start, start + at_once)

    @abstractmethod
    def _scores(self, hidden: np.ndarray) -> np.ndarray:
        """Return the scores of all words, float32 (N, V), in an array that may be changed."""
