"""Perplexity of a text by the frequencies of words and pairs, for comparison with a model's."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from bilm.data.shards import Shards
from bilm.data.vocabulary import Vocabulary
from bilm.support.progress import Progress

DATASET = "ngrams"  # in HDF5, the pairs of `Ngrams`
DISCOUNT = 0.75  # D of `Ngrams.bigram_probabilities`


def text_ids(shards: Shards, vocab: Vocabulary) -> np.ndarray:
    """Return the id of `</S>` and those of all words and ends of sentences, int64 (N + 1,). Raises:
    DataError, also for an unknown word if the vocabulary lacks `<UNK>`."""
    ids = array("i", [vocab.eos])
    counted = Progress("counting", "sentences")
    for words in counted.over(shards.sentences()):
        ids.frombytes(vocab.known_ids(words).tobytes())
        ids.append(vocab.eos)
    return np.array(ids, np.int64)


class Ngrams(NamedTuple):
    """Counts of the words and pairs of words of a text, by the V ids of a vocabulary.

    If the text has no unknown words, half of those that occur once count as `<UNK>`.
    """

    pairs: np.ndarray  # ids of each different pair, in ascending order, and its count, int32 (P, 3)
    n_words: int  # V

    @classmethod
    def of(cls, ids: np.ndarray, vocab: Vocabulary) -> Ngrams:
        """Count a text, the result of `text_ids`."""
        if vocab.unk >= 0 and vocab.unk not in ids:
            is_once = np.bincount(ids)[ids] == 1
            ids = ids.copy()
            ids[np.flatnonzero(is_once)[::2]] = vocab.unk
        numbers = ids[:-1] * vocab.size + ids[1:]  # of the pairs
        pairs, counts = np.unique(numbers, return_counts=True)
        first, second = np.divmod(pairs, vocab.size)
        columns = [first, second, counts]
        return cls(np.stack(columns, axis=1).astype(np.int32), vocab.size)

    def word_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Return the probability of each prediction in another text, the result of `text_ids`, by
        the frequencies of words, with 1 added to each count: float64 (N,)."""
        counts = 1 + np.bincount(self.pairs[:, 1], self.pairs[:, 2], self.n_words)  # V
        return counts[ids[1:]] / counts.sum()

    def bigram_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Return the same by pairs of words, with smoothing by Pitman-Yor processes (Teh 2006),
        which is almost that of Kneser and Ney::

            P(w | v) = (max(n(v, w) - D, 0) + D (1 + kinds(v, .)) P(w)) / (n(v) + D)
            P(w) = (max(kinds(., w) - D, 0) + D (1 + kinds(.)) / V) / (kinds(., .) + D)

        where kinds are numbers of different pairs or words.
        """
        size = self.n_words
        first, second, n_of_pairs = self.pairs.astype(np.int64).T  # n(v, w)
        n_of_first = np.bincount(first, n_of_pairs, size)  # n(v), V
        kinds_after = np.bincount(first, minlength=size)  # V
        kinds_before = np.bincount(second, minlength=size)  # V

        # P(w) for each word of the vocabulary
        rest = DISCOUNT * (1 + np.count_nonzero(kinds_before)) / size
        discounted = np.maximum(kinds_before - DISCOUNT, 0)
        p_of_words = (discounted + rest) / (len(first) + DISCOUNT)

        # n(v, w) for each pair of the other text, 0 for those that do not occur in this one
        left = ids[:-1]
        right = ids[1:]
        pairs = first * size + second
        heldout_pairs = left * size + right
        occurs = np.isin(heldout_pairs, pairs)
        counts = np.zeros_like(heldout_pairs)
        places = np.searchsorted(pairs, heldout_pairs[occurs])
        counts[occurs] = n_of_pairs[places]

        # P(w | v) for each of them
        rest_of_pairs = DISCOUNT * (1 + kinds_after[left]) * p_of_words[right]
        discounted = np.maximum(counts - DISCOUNT, 0)
        return (discounted + rest_of_pairs) / (n_of_first[left] + DISCOUNT)
