"""Negatives of the sampled softmax and targets of rare words, drawn on the host by the key of where
they are used: no checkpoint reaches the random state of TensorFlow's own candidate sampler."""

from functools import lru_cache

import numpy as np

from bilm.layers.sampled_softmax import Negatives


def draw_negatives(
    n_tokens: int, n_samples: int, key: tuple[int, int, int, int], targets: np.ndarray
) -> Negatives:
    """Draw distinct words, word k with probability log((k + 2) / (k + 1)) / log(V + 1).

    The distribution suits a vocabulary in descending order of frequency. Draws are repeated until
    `n_samples` of them are distinct, and the expected counts allow for the number of tries.

    Args:
        n_tokens: vocabulary size V; `n_samples`: how many distinct words to draw, S, below V.
        key: seed of the run, step, replica and direction.
        targets: ids of the words to predict, integer (N,).
    Returns: `Negatives` of NumPy arrays: int64 (S,), float32 (S,) and float32 (N,).
    """
    random = np.random.Generator(np.random.Philox(key))

    never = np.iinfo(np.int32).max
    first: np.ndarray = np.full(n_tokens, never, np.int32)  # V, the first draw of each word
    ids: np.ndarray = np.empty(0, np.int64)  # distinct words, in the order of their first draws
    n_drawn = 0
    log_size = np.log(n_tokens + 1)
    while len(ids) < n_samples:
        uniform = random.random(max(n_drawn, 2 * n_samples))
        words = np.exp(uniform * log_size).astype(np.int64) - 1
        words[words == n_tokens] = 0  # exp(u log(V + 1)) may round up to V + 1
        end = n_drawn + len(words)
        draws: np.ndarray = np.arange(n_drawn, end, dtype=np.int32)
        np.minimum.at(first, words, draws)  # faster than sorting
        is_first = first[words] == draws
        ids = np.concatenate([ids, words[is_first]])
        n_drawn = end
    ids = ids[:n_samples]
    n_tries = int(first[ids[-1]]) + 1
    return Negatives(
        ids,
        expected_count(ids, n_tokens, n_tries),
        expected_count(targets, n_tokens, n_tries),
    )


def expected_count(ids: np.ndarray, n_tokens: int, n_tries: int) -> np.ndarray:
    """Return the probability that a word is among `n_tries` draws, float32."""
    return -np.expm1(n_tries * log_missed(n_tokens)[ids]).astype(np.float32)


@lru_cache(maxsize=1)
def log_missed(n_tokens: int) -> np.ndarray:
    """Return the logarithm of the probability that a draw is another word: float64 (V,)."""
    return np.log1p(-log_uniform_probability(np.arange(n_tokens), n_tokens))


def with_unknown(
    targets: np.ndarray, once_from: int, unk: int, key: tuple[int, int, int], rows: range
) -> np.ndarray:
    """Replace half of the words that occur once in the training text by `<UNK>`, others in each
    step. The share of these words estimates that of new words (Good 1953, The Population
    Frequencies of Species); `<UNK>` is not in the text if the vocabulary contains all its words.

    Args:
        targets: ids in the rows `rows` of a window, of those of all replicas, integer (B, T).
        once_from: the first id of the words that occur once; `key`: seed, step and direction.
    """
    random = np.random.default_rng(key)
    drawn = random.random((rows.stop, targets.shape[1]))[rows.start :]  # B, T
    is_replaced = (targets >= once_from) & (drawn < 0.5)
    return np.where(is_replaced, unk, targets)


def log_uniform_probability(ids: np.ndarray, n_tokens: int) -> np.ndarray:
    """Return the probability of each word in a draw: float64, of the shape of `ids`."""
    ids = np.asarray(ids, dtype=np.float64)
    return np.log((ids + 2.0) / (ids + 1.0)) / np.log(n_tokens + 1)
