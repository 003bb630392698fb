"""Probabilities of words by counts of a text's n-grams: pairs of words, or triples."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bilm.data.shards import Shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError, WeightsError
from bilm.storage.stored_model import StoredModel
from bilm.support.model_files import NGRAM_COUNTS
from bilm.support.progress import Progress

DISCOUNT = 0.75  # D of `Ngrams.probabilities`
MAX_NUMBER = 1 << 63  # of n-grams, int64


def text_ids(shards: Shards, vocab: Vocabulary) -> np.ndarray:
    """Return the id of `</S>` and those of all words and ends of sentences, int64 (N + 1,). Raises:
    DataError for a text without words, and for an unknown word if the vocabulary lacks `<UNK>`."""
    ids = array("i", [vocab.eos])
    counted = Progress("counting", "sentences")
    for words in counted.over(shards.sentences()):
        ids.frombytes(vocab.known_ids(words).tobytes())
        ids.append(vocab.eos)
    if len(ids) == 1:
        raise DataError(f"{shards.name}: no sentence; every line is blank")
    return np.array(ids, np.int64)


@dataclass(frozen=True)
class Ngrams:
    """Counts of the n-grams of a text, by the V ids of a vocabulary. n is 2 or 3; before the first
    word of a sentence are n - 1 marks `</S>`.

    If the text has no unknown words, half of those that occur once count as `<UNK>`.
    """

    counts: np.ndarray  # ids of each different n-gram, ascending, and its count, int32 (N, n + 1)
    n_words: int  # V

    @classmethod
    def of(cls, ids: np.ndarray, vocab: Vocabulary, order: int = 2) -> Ngrams:
        """Count a text, the result of `text_ids`; `order`: n."""
        if vocab.unk >= 0 and vocab.unk not in ids:
            is_once = np.bincount(ids)[ids] == 1
            ids = ids.copy()
            ids[np.flatnonzero(is_once)[::2]] = vocab.unk
        if vocab.size**order > MAX_NUMBER:
            limit = int(MAX_NUMBER ** (1 / order))
            raise DataError(f"{vocab.filename}: {vocab.size:,} words; expected at most {limit:,}")
        numbers, counts = np.unique(_numbers(ids, order, vocab.size), return_counts=True)
        columns = np.unravel_index(numbers, (vocab.size,) * order)
        return cls(np.stack([*columns, counts], axis=1).astype(np.int32), vocab.size)

    @classmethod
    def of_model(cls, stored: StoredModel) -> Ngrams | None:
        """Return the counts of pairs of a model's training text; None if they are not stored.
        Raises: WeightsError if they are damaged or of another model."""
        counts = stored.ngram_counts()
        if counts is None or stored.n_words is None:
            return None
        ngrams = cls(counts, stored.n_words)
        if not ngrams.has_order(2):
            raise WeightsError(
                f"{stored.ngrams_path}: expected counts of pairs of the model's "
                f"{stored.n_words} words in the dataset {NGRAM_COUNTS}, but it is damaged or of "
                "another model; export or train again"
            )
        return ngrams

    def has_order(self, order: int) -> bool:
        """Return whether counts from a file are whole, and of n-grams of this order and this
        vocabulary."""
        if len(self.counts) == 0 or self.counts.shape[1:] != (order + 1,):
            return False
        *columns, n_of_grams = self.counts.astype(np.int64).T
        ids = self.counts[:, :-1]
        if ids.min() < 0 or ids.max() >= self.n_words:
            return False
        grams = np.ravel_multi_index(columns, (self.n_words,) * order)
        return bool(n_of_grams.min() > 0 and (np.diff(grams) > 0).all())

    def word_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Return the probability of each prediction in another text, the result of `text_ids`, by
        the frequencies of words, with 1 added to each count: float64 (N,)."""
        counts = 1 + np.bincount(self.counts[:, -2], self.counts[:, -1], self.n_words)  # V
        return counts[ids[1:]] / counts.sum()

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Return the same by the n - 1 words before each word, with smoothing by Pitman-Yor
        processes (Teh 2006), which is almost that of Kneser and Ney::

            P(w | c) = share(c, w) + weight(c) P(w | c without its first word)
            share(c, w) = max(n(c, w) - D, 0) / (n(c) + D)
            weight(c) = D (1 + kinds(c, .)) / (n(c) + D)

        For a shorter context c, n(c, w) is kinds(., c, w), the number of different words before c
        w, and n(c) its sum over w. Without context, the last factor is 1 / V.
        """
        numbers = _numbers(ids, len(self._levels), self.n_words)
        probabilities = np.array(1 / self.n_words)
        for k, (shares, weights) in enumerate(self._levels, start=1):
            grams = numbers % self.n_words**k  # the last k words
            probabilities = shares.at(grams) + weights.at(grams // self.n_words) * probabilities
        return probabilities

    @cached_property
    def _levels(self) -> list[tuple[_Table, _Table]]:
        """The shares and weights of `probabilities` for contexts of 0 words, of 1 word, ..."""
        *columns, n_of_grams = self.counts.astype(np.int64).T
        grams = np.asarray(np.ravel_multi_index(columns, (self.n_words,) * len(columns)))
        levels = []
        for k in reversed(range(len(columns))):
            contexts, first, kinds = np.unique(
                grams // self.n_words, return_index=True, return_counts=True
            )
            totals = np.add.reduceat(n_of_grams, first) + DISCOUNT
            shares = np.maximum(n_of_grams - DISCOUNT, 0) / np.repeat(totals, kinds)
            weights = DISCOUNT * (1 + kinds) / totals
            levels.append((_Table(grams, shares, 0), _Table(contexts, weights, 1)))
            grams, n_of_grams = np.unique(grams % self.n_words**k, return_counts=True)
        return levels[::-1]


class _Table(NamedTuple):
    """Values of some n-grams, float64 (N,), by their numbers, which ascend."""

    numbers: np.ndarray
    values: np.ndarray
    other: float  # value of all other n-grams

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the values of n-grams."""
        places = np.searchsorted(self.numbers[:-1], numbers)
        return np.where(self.numbers[places] == numbers, self.values[places], self.other)


def _numbers(ids: np.ndarray, order: int, n_words: int) -> np.ndarray:
    """Return the number of the n-gram at each prediction, with its ids as digits, int64 (N,)."""
    end = ids[0]
    words = [ids[1:]]
    before = ids[:-1]
    for _ in range(order - 1):
        words.insert(0, before)
        before = np.where(before == end, end, np.append(end, before[:-1]))  # of the same sentence
    return np.asarray(np.ravel_multi_index(words, (n_words,) * order))
