"""Negatives of the sampled softmax and targets of rare words, drawn on the host and keyed by where
they are used.

TensorFlow's own candidate sampler keeps its random state inside a kernel, where no checkpoint
reaches it; this one is a pure function of its key.
"""

from __future__ import annotations

import numpy as np

from bilm.layers.sampled_softmax import Negatives


class LogUniformSampler:
    """Draw distinct words, word k with probability log((k + 2) / (k + 1)) / log(V + 1).

    The distribution suits a vocabulary in descending order of frequency. Draws are repeated until
    `n_samples` of them are distinct, and the expected counts allow for the number of tries.

    Args:
        n_tokens: vocabulary size V.
        n_samples: how many distinct words to draw, S; below V.
        seed: the run's seed.
    """

    def __init__(self, n_tokens: int, n_samples: int, seed: int):
        self.n_tokens, self.n_samples, self.seed = n_tokens, n_samples, seed

    def draw(self, key: tuple[int, int, int], targets: np.ndarray) -> Negatives:
        """Draw for one direction of one window.

        Args:
            key: step, replica and direction.
            targets: integer (N,).
        Returns: `Negatives` of NumPy arrays, int64 (S,), float32 (S,) and float32 (N,).
        """
        sequence = np.random.SeedSequence([self.seed, *key])
        random = np.random.Generator(np.random.Philox(sequence))
        drawn: np.ndarray = np.zeros(0, np.int64)
        n_next = 2 * self.n_samples
        while True:
            drawn = np.concatenate([drawn, self.words(random.random(n_next))])
            distinct, first = np.unique(drawn, return_index=True)
            if len(distinct) >= self.n_samples:
                break
            n_next = len(drawn)
        order = np.sort(first)[: self.n_samples]
        ids, n_tries = drawn[order], order[-1] + 1
        counts = (self.expected_count(words, n_tries) for words in (ids, targets))
        return Negatives(ids, *counts)

    def expected_count(self, ids: np.ndarray, n_tries: int) -> np.ndarray:
        """Return the probability that a word is among `n_tries` draws, float32."""
        log_missed = np.log1p(-log_uniform_probability(ids, self.n_tokens))
        return -np.expm1(n_tries * log_missed).astype(np.float32)

    def words(self, uniform: np.ndarray) -> np.ndarray:
        """Return words, int64 (N,), from uniform numbers (N,) in [0, 1)."""
        words = np.exp(uniform * np.log(self.n_tokens + 1)).astype(np.int64) - 1
        return words % self.n_tokens  # exp(u log(V + 1)) may round up to V + 1


def with_unknown(
    targets: np.ndarray, once_from: int, unk: int, key: tuple[int, int, int], rows: range
) -> np.ndarray:
    """Replace half of the words that occur once in the training text by `<UNK>`; each step draws
    others.

    If the vocabulary contains all words of the training text, `<UNK>` would never be a target. The
    share of the words that occur once estimates that of new words (Good 1953, The Population
    Frequencies of Species).

    Args:
        targets: ids in some rows of a window, integer (B, T).
        once_from: the first id of the words that occur once.
        unk: id of `<UNK>`.
        key: seed, step and direction.
        rows: these rows, of the rows of all replicas.
    """
    drawn = np.random.default_rng(key).random((rows.stop, targets.shape[1]))[rows.start :]
    return np.where((drawn < 0.5) & (targets >= once_from), unk, targets)


def log_uniform_probability(ids: np.ndarray, n_tokens: int) -> np.ndarray:
    """Return the probability of each word in a draw: float64, of the shape of `ids`."""
    ids = np.asarray(ids, dtype=np.float64)
    return np.log((ids + 2.0) / (ids + 1.0)) / np.log(n_tokens + 1)
