"""Perplexity of a text by the frequencies of words and pairs, for comparison with a model's."""

from __future__ import annotations

from array import array

import numpy as np

from bilm.data.shards import Shards
from bilm.data.vocabulary import Vocabulary
from bilm.support.progress import progress

DISCOUNT = 0.75  # D of `bigram_perplexity`


def text_ids(shards: Shards, vocab: Vocabulary) -> np.ndarray:
    """Return the id of `</S>` and those of all words and ends of sentences, int64 (N + 1,). Raises:
    DataError, also for an unknown word if the vocabulary lacks `<UNK>`."""
    ids = array("i", [vocab.eos])
    with progress("counting", "sentences") as counted:
        for words in counted.over(shards.sentences()):
            ids.frombytes(vocab.known_ids(words).tobytes())
            ids.append(vocab.eos)
    return np.array(ids, np.int64)


def _perplexity(probabilities: np.ndarray) -> float:
    return float(np.exp(-np.log(probabilities).mean()))


def unigram_perplexity(ids: np.ndarray, n_words: int) -> float:
    """Return the perplexity of a text, the result of `text_ids`, by the frequencies of words in the
    rest of the text, with 1 added to each count."""
    predicted = ids[1:]
    counts = np.bincount(predicted)[predicted]
    return _perplexity(counts / (len(counts) - 1 + n_words))


def word_perplexity(train: np.ndarray, heldout: np.ndarray, n_words: int) -> float:
    """Return the perplexity of a text by the frequencies of words in a training text, with 1 added
    to each count. Both texts are results of `text_ids`."""
    counts = 1 + np.bincount(train[1:], minlength=n_words)  # V
    return _perplexity(counts[heldout[1:]] / counts.sum())


def bigram_perplexity(train: np.ndarray, heldout: np.ndarray, vocab: Vocabulary) -> float:
    """Return the perplexity of a text by pairs of words in a training text, with smoothing by
    Pitman-Yor processes (Teh 2006), which is almost that of Kneser and Ney::

        P(w | v) = (max(n(v, w) - D, 0) + D (1 + kinds(v, .)) P(w)) / (n(v) + D)
        P(w) = (max(kinds(., w) - D, 0) + D (1 + kinds(.)) / V) / (kinds(., .) + D)

    where kinds are numbers of different pairs or words. If the training text has no unknown words,
    half of those that occur once are replaced by `<UNK>`. Both texts are results of `text_ids`.
    """
    size = vocab.size
    if vocab.unk >= 0 and vocab.unk not in train:
        is_once = np.bincount(train)[train] == 1
        train = train.copy()
        train[np.flatnonzero(is_once)[::2]] = vocab.unk

    # The different pairs of the training text, v V + w ascending, and n(v, w); n(v) and kinds.
    train_pairs = train[:-1] * size + train[1:]
    pairs, n_of_pairs = np.unique(train_pairs, return_counts=True)
    left, right = np.divmod(pairs, size)
    n_of_left = np.bincount(left, n_of_pairs, size)  # V
    kinds_after = np.bincount(left, minlength=size)  # V
    kinds_before = np.bincount(right, minlength=size)  # V

    # P(w) for each word of the vocabulary
    rest = DISCOUNT * (1 + np.count_nonzero(kinds_before)) / size
    discounted = np.maximum(kinds_before - DISCOUNT, 0)
    p_of_words = (discounted + rest) / (len(pairs) + DISCOUNT)

    # n(v, w) for each pair of the held-out text, 0 for those that do not occur in the other
    left = heldout[:-1]
    right = heldout[1:]
    heldout_pairs = left * size + right
    occurs = np.isin(heldout_pairs, pairs)
    counts = np.zeros_like(heldout_pairs)
    places = np.searchsorted(pairs, heldout_pairs[occurs])
    counts[occurs] = n_of_pairs[places]

    # P(w | v) for each of them
    rest_of_pairs = DISCOUNT * (1 + kinds_after[left]) * p_of_words[right]
    discounted = np.maximum(counts - DISCOUNT, 0)
    return _perplexity((discounted + rest_of_pairs) / (n_of_left[left] + DISCOUNT))


def unknown_percent(ids: np.ndarray, vocab: Vocabulary) -> float:
    """Return the share of the words that the vocabulary lacks, in percent."""
    n_unknown = np.count_nonzero(ids == vocab.unk)
    n_words = np.count_nonzero(ids != vocab.eos)
    return 100 * n_unknown / n_words
