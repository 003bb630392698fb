"""The softmax of a stored language model in NumPy, in one thread per core.

Each thread computes one slice of the vocabulary after another, whose scores fit a core's cache, so
that they are not written to memory.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeAlias

import numpy as np

from bilm.inference.blas import one_blas_thread
from bilm.support.process import available_cores

SCORES_IN_CACHE = 1 << 17  # scores, hidden vectors times words, that fit a core's cache
MAX_SCORES = 1 << 24  # most scores that are in memory at a time
# Words of a slice: products of fewer take longer, and sums over more, in float32, are less precise.
SLICE_WORDS = 128, 512

Arrays: TypeAlias = tuple[np.ndarray, ...]


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


class Softmax:
    """The distributions over V words, `n_words`, that hidden vectors, float32 (N, P), predict:
    `kernel` float32 (V, P), `bias` float32 (V,)."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray):
        self.n_words = len(kernel)
        self._kernel = kernel
        self._bias = bias

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the negative log-probability of a word for each hidden vector, in nats: float32
        (N, P), int32 (N,) -> float32 (N,)."""
        largest, totals = self._of_slices(hidden, lambda scores, _: _exponentiated(scores))
        losses = _log_total(largest, totals) - self._of_targets(hidden, targets)
        return losses.astype(np.float32)

    def log_probabilities(self, hidden: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the log-probabilities of all words for each hidden vector, float32 (V,)."""
        for _, scores in self._scores(hidden):
            scores -= scores.max(axis=1, keepdims=True)
            totals = np.exp(scores).sum(axis=1, keepdims=True)
            scores -= np.log(totals)
            yield from scores

    def described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> np.ndarray:
        """Return the description of each distribution: records (N,), see `described_dtype`.
        `targets`: ids of the words that occur, int32 (N,); `n`: at most V."""
        of_targets = self._of_targets(hidden, targets)

        def measured(scores: np.ndarray, words: slice) -> Arrays:
            # A product may round the score of a target otherwise; it is no likelier than itself.
            inside = np.flatnonzero((words.start <= targets) & (targets < words.stop))
            scores[targets[inside] - words.start, inside] = of_targets[inside]
            n_likelier = (scores > of_targets).sum(axis=0, dtype=np.int32)
            unchanged = scores.copy()
            largest, total = _exponentiated(scores)
            weighted = np.einsum("vn,vn->n", scores, unchanged)
            return largest, total, weighted, n_likelier

        largest, totals, weighted, n_likelier = self._of_slices(hidden, measured)
        normalizer = _log_total(largest, totals)
        records: np.ndarray = np.empty(len(hidden), described_dtype(n))
        records["log"] = of_targets - normalizer
        factors = np.exp(largest - normalizer)  # from exponentials of a slice to probabilities
        records["entropy"] = normalizer - (weighted * factors).sum(axis=0)
        records["rank"] = 1 + n_likelier.sum(axis=0)
        for part, scores in self._scores(hidden if n else hidden[:0]):
            largest, words = _top_k(scores, n)
            records["likeliest"][part] = words
            records["likeliest_logs"][part] = largest - normalizer[part, None]
        return records

    def _scores(self, hidden: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the scores of all words, float32 (n, V), for some of the hidden vectors."""
        at_once = max(1, MAX_SCORES // self.n_words)
        for start in range(0, len(hidden), at_once):
            part = slice(start, start + at_once)
            scores = hidden[part] @ self._kernel.T
            yield part, scores + self._bias

    def _of_targets(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        scores = np.einsum("np,np->n", hidden, self._kernel[targets])
        return scores + self._bias[targets]

    def _of_slices(
        self, hidden: np.ndarray, measure: Callable[[np.ndarray, slice], Arrays]
    ) -> list[np.ndarray]:
        """Return what is measured in each slice of the vocabulary, float64 (n_slices, N). `measure`
        is a function from scores, float32 (n, N), which may be changed, and the slice to arrays
        (N,). Words are first, because NumPy is slow at sums over short rows."""
        columns = hidden.T.copy()
        n_threads = available_cores()
        n_at_once = int(np.clip(SCORES_IN_CACHE // max(1, len(hidden)), *SLICE_WORDS))
        starts = range(0, self.n_words, n_at_once)

        def run(thread: int) -> list[Arrays]:
            results = []
            for start in starts[thread::n_threads]:
                words = slice(start, start + n_at_once)
                scores = self._kernel[words] @ columns
                scores += self._bias[words, None]
                results.append(measure(scores, words))
            return results

        with one_blas_thread(), ThreadPoolExecutor(n_threads) as threads:
            results = chain.from_iterable(threads.map(run, range(n_threads)))
            return [np.array(values, np.float64) for values in zip(*results, strict=True)]


def _exponentiated(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest score of each column and sum_v exp(score_v - largest): float32 (n, N) ->
    (N,) each. Replace the scores with these exponentials."""
    largest = scores.max(axis=0)
    scores -= largest
    np.exp(scores, out=scores)
    return largest, scores.sum(axis=0)


def _log_total(largest: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return log sum_v exp(score_v) from the results of slices: (n_slices, N) -> (N,)."""
    of_all = largest.max(axis=0)
    total = (totals * np.exp(largest - of_all)).sum(axis=0)
    return of_all + np.log(total)


def _top_k(scores: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n largest scores of each row, in descending order, and their indices: (N, n)."""
    last = min(n, scores.shape[1] - 1)
    words = np.argpartition(-scores, last, axis=1)[:, :n]
    logs = np.take_along_axis(scores, words, axis=1)
    order = np.argsort(-logs, axis=1, kind="stable")
    words = np.take_along_axis(words, order, axis=1)
    return np.take_along_axis(logs, order, axis=1), words
