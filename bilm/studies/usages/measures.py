"""Measures of the change of one word between two groupings, such as periods.

A measure is a function of the means of some features over the usages of each grouping:

    apd          average pairwise distance: mean cosine distance between a usage of one grouping and
                 a usage of the other. Features: vectors of length 1, so that it is
                 1 - mean(a) . mean(b). Giulianelli et al. 2020, arXiv:2004.14118
    prt          distance of prototypes: cosine distance between the mean vectors. Kutuzov and
                 Giulianelli 2020, arXiv:2005.00050, who report 1 / similarity (the same ranks)

The mean over random splits of the word's usages into groupings of the same sizes is the value that
is expected without change. It is subtracted from `prt`, which few usages make larger.

The baseline `ppmi` needs no biLM: the cosine distance between a word's rows of positive pointwise
mutual information in both groupings, after Hamilton et al. 2016, arXiv:1605.09096. The entry of a
context word c is max(0, log p(c | word) - log p(c)), where p(c | word) is the share of c among the
words near the usages; p(c) is proportional to its frequency ** 0.75 (Levy et al. 2015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.studies.usages.usages import normalized, words_near

if TYPE_CHECKING:
    import pandas

LARGEST = 2.0  # value of a measure
BATCH_NUMBERS = 1 << 24  # weights of resampled usages that are computed at a time
# Of the baseline: occurrences of a context word in each grouping, and exponent of frequencies.
MIN_COUNT, SMOOTHING = 5, 0.75


class Measure(NamedTuple):
    """A measure of change."""

    features: Callable[[np.ndarray], np.ndarray]  # vectors (N, D) -> (N, F)
    of_means: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (..., F), (..., F) -> values (...)
    is_corrected: bool  # whether the mean over random splits is subtracted from the value


def cosine_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine distances (...) between vectors (..., F); 1 if a vector is zero."""
    return 1 - (normalized(a) * normalized(b)).sum(axis=-1)


FUNCTIONS = {  # by the names in `MEASURES` of `bilm.studies.usages.settings`
    "apd": Measure(normalized, lambda a, b: 1 - (a * b).sum(axis=-1), is_corrected=False),
    "prt": Measure(np.asarray, cosine_distance, is_corrected=True),
}


class Resampling:
    """Draws usages of a word, with the vectors float64 (N, D), and computes the values of a measure
    for them. A draw states how often each usage belongs to each grouping; its value depends on the
    weighted means. `is_first`: which usages belong to the first grouping, boolean (N,)."""

    def __init__(self, measure: Measure, vectors: np.ndarray, is_first: np.ndarray, seed: int):
        self._measure = measure
        self._features = measure.features(vectors)  # N, F
        self._is_first = is_first
        self._random = np.random.default_rng(seed)

    def splits(self, n: int) -> np.ndarray:
        """Return the values of random splits into groupings of the same sizes, (n,)."""
        values = []
        for size in self._batches(n):
            first = self._random.permuted(np.tile(self._is_first, (size, 1)), axis=1)  # size, N
            values.append(self.values(first, ~first))
        return np.concatenate(values)

    def bootstrap(self, n: int) -> np.ndarray:
        """Return the values of usages that are drawn from each grouping with replacement, (n,)."""
        values = []
        for size in self._batches(n):
            counts = []  # how often each usage is drawn from each grouping, size, N
            for grouping in (self._is_first, ~self._is_first):
                n_usages = grouping.sum()
                shares = grouping / n_usages
                counts.append(self._random.multinomial(n_usages, shares, size))
            values.append(self.values(*counts))
        return np.concatenate(values)

    def _batches(self, n: int) -> list[int]:
        """Return the sizes of batches of `n` draws that bound memory."""
        largest = max(1, BATCH_NUMBERS // len(self._features))
        return [min(largest, n - start) for start in range(0, n, largest)]

    def values(self, *counts: np.ndarray) -> np.ndarray:
        """Return the values (...) of draws: numbers (..., N) of the usages in each grouping."""
        means = []
        for n in counts:
            n_usages = n.sum(axis=-1, keepdims=True)  # ..., 1
            means.append(n @ self._features / n_usages)  # ..., F
        return self._measure.of_means(*means)


def ppmi_distances(frame: pandas.DataFrame, groupings: Sequence[str]) -> dict[str, float]:
    """Return the baseline `ppmi` of each word by the compared usages of all words in two groupings;
    nan for a word without a common context word."""
    sides = [frame[frame["grouping"] == name] for name in groupings]

    # Frequencies of all words, counting each sentence once.
    frequencies = []
    for side in sides:
        sentences = side.drop_duplicates(["text", "line"])["sentence"]
        frequencies.append(Counter(" ".join(sentences).split(" ")))

    # Context words, and log p(c) of each in both groupings.
    first, second = frequencies
    smaller = first & second  # of the frequencies in both groupings
    forms = set(frame["form"])
    contexts = [word for word, n in smaller.items() if n >= MIN_COUNT and word not in forms]
    log_p = [_log_shares(contexts, counts, SMOOTHING) for counts in frequencies]  # C each

    distances = {}
    for word in frame["word"].unique():
        rows = []
        for side, log_p_of_side in zip(sides, log_p, strict=True):
            near = Counter[str]()
            for usage in side[side["word"] == word].itertuples():
                near.update(words_near(usage.sentence, usage.position))
            rows.append(np.maximum(_log_shares(contexts, near) - log_p_of_side, 0))  # C
        distances[word] = float(cosine_distance(*rows))
    return distances


def _log_shares(words: Sequence[str], counts: Counter[str], exponent: float = 1) -> np.ndarray:
    """Return the log-shares of words, float64; -inf without counts, nan if no word has any."""
    powers = np.array([counts[word] for word in words], float) ** exponent
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(powers / powers.sum())
