"""Perplexity of a text by the frequencies of words and pairs, for comparison with a model's."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from bilm.data.shards import Shards, count_tokens
from bilm.data.vocabulary import Vocabulary

DISCOUNT = 0.75  # D of `bigram_perplexity`


def text_ids(shards: Shards, vocab: Vocabulary) -> np.ndarray:
    """Return the id of `</S>` and those of all predictions, words and ends of sentences: int64
    (N + 1,).

    Raises: DataError for an unknown word if the vocabulary lacks `<UNK>`.
    """
    ids = array("i", [vocab.eos])

    def add(words: list[str]) -> None:
        ids.frombytes(vocab.known_ids(words).tobytes())
        ids.append(vocab.eos)

    count_tokens(shards, add)
    return np.array(ids, np.int64)


def unigram_perplexity(ids: np.ndarray, n_words: int) -> float:
    """Return the perplexity of a text, the result of `text_ids`, by the frequencies of words in the
    rest of the text, with 1 added to each count."""
    predicted = ids[1:]
    counts = np.bincount(predicted)[predicted]
    shares = counts / (len(counts) - 1 + n_words)
    return float(np.exp(-np.log(shares).mean()))


def bigram_perplexity(train: np.ndarray, heldout: np.ndarray, vocab: Vocabulary) -> float:
    """Return the perplexity of a text by pairs of words in a training text, with smoothing by
    Pitman-Yor processes (Teh 2006), which is almost that of Kneser and Ney::

        P(w | v) = (max(n(v, w) - D, 0) + D (1 + kinds(v, .)) P(w)) / (n(v) + D)
        P(w) = (max(kinds(., w) - D, 0) + D (1 + kinds(.)) / V) / (kinds(., .) + D)

    where kinds are numbers of different pairs or words. If the training text has no unknown words,
    half of those that occur once are replaced by `<UNK>`. Both texts are results of `text_ids`.
    """
    if vocab.unk >= 0 and not (train == vocab.unk).any():
        train = _with_unknown_words(train, vocab)
    pairs = Pairs.of(train, vocab.size)

    # P(w) for each word of the vocabulary
    rest = DISCOUNT * (1 + np.count_nonzero(pairs.kinds_before)) / vocab.size
    discounted = np.maximum(pairs.kinds_before - DISCOUNT, 0)
    p_of_words = (discounted + rest) / (len(pairs.keys) + DISCOUNT)

    # P(w | v) for each pair of the held-out text
    left, right = heldout[:-1], heldout[1:]
    rest_of_pairs = DISCOUNT * (1 + pairs.kinds_after[left]) * p_of_words[right]
    discounted = np.maximum(pairs.counts_of(left, right) - DISCOUNT, 0)
    p_of_pairs = (discounted + rest_of_pairs) / (pairs.n_of_left[left] + DISCOUNT)
    return float(np.exp(-np.log(p_of_pairs).mean()))


class Pairs(NamedTuple):
    """The pairs (v, w) of consecutive words in a text.

    Fields:
        size: number of words of the vocabulary, V.
        keys: v V + w of each different pair, ascending, int64 (n,).
        n_of_pairs: n(v, w), integer (n,).
        n_of_left: n(v), float (V,).
        kinds_after, kinds_before: kinds(v, .) and kinds(., w), integer (V,).
    """

    size: int
    keys: np.ndarray
    n_of_pairs: np.ndarray
    n_of_left: np.ndarray
    kinds_after: np.ndarray
    kinds_before: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, size: int) -> Pairs:
        """Count the pairs of a text, the result of `text_ids`."""
        keys, n_of_pairs = np.unique(ids[:-1] * size + ids[1:], return_counts=True)
        left, right = np.divmod(keys, size)
        return cls(
            size,
            keys,
            n_of_pairs,
            np.bincount(left, n_of_pairs, size),
            np.bincount(left, minlength=size),
            np.bincount(right, minlength=size),
        )

    def counts_of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return n(v, w) of pairs, 0 for those that do not occur, integer (N,)."""
        keys = left * self.size + right
        places = np.searchsorted(self.keys, keys)
        occurs = np.append(self.keys, -1)[places] == keys
        return np.where(occurs, np.append(self.n_of_pairs, 0)[places], 0)


def _with_unknown_words(ids: np.ndarray, vocab: Vocabulary) -> np.ndarray:
    """Return ids with every second one of the words that occur once replaced by `<UNK>`."""
    is_once = np.bincount(ids, minlength=vocab.size)[ids] == 1
    ids = ids.copy()
    ids[np.flatnonzero(is_once)[::2]] = vocab.unk
    return ids


def unknown_percent(ids: np.ndarray, vocab: Vocabulary) -> float:
    """Return the share of the words that the vocabulary lacks, in percent."""
    n_unknown = np.count_nonzero(ids == vocab.unk)
    n_words = np.count_nonzero(ids != vocab.eos)
    return 100 * n_unknown / n_words
