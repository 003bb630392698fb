"""Checks of a text before training: signs, counts, and the vocabulary's order."""

from __future__ import annotations

from collections import Counter

import numpy as np
from absl import logging

from bilm.data.shards import Shards, TextCounts, count_tokens
from bilm.data.vocabulary import MARKS, Vocabulary

SAMPLE_TOKENS = 1_000_000  # number of tokens read if `sample`
# Disorder: words MIN_RATIO times as frequent as one before them, by MIN_DEVIATIONS standard
# deviations, are MIN_SHARE of the text. Alphabetical order: 0.9; that of other texts: at most 0.3.
MIN_RATIO, MIN_DEVIATIONS, MIN_SHARE = 2, 4, 0.5


def survey(
    shards: Shards, vocab: Vocabulary, check_order: bool = True, sample: bool = False
) -> tuple[TextCounts, int | None]:
    """Count the text; log how many words are unknown, and words that are out of order.

    Returns: the counts; the first id of the vocabulary's last words, which occur at most once, in a
        text without unknown words, else None.
    Args:
        check_order: whether to compare the vocabulary's order with the frequencies in the text.
        sample: read only the first lines of each file, `SAMPLE_TOKENS` in total.
    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    shards.examine()
    words: Counter[str] = Counter()
    most = -(-SAMPLE_TOKENS // len(shards)) if sample else None
    counts = count_tokens(shards, words.update, most)
    if not sample:
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
    totals = by_id(words, vocab)
    if counts.n_tokens and vocab.unk >= 0:
        share, where = 100 * totals[vocab.unk] / counts.n_tokens, "sample: " * sample
        logging.info("%s%.3g %% of the words are not in the vocabulary", where, share)
    if check_order and (disorder := find_disorder(totals, vocab)) is not None:
        (early, n_early), (late, n_late) = disorder
        logging.warning(
            "%s: not sorted by descending frequency in this text: %r, which occurs %s times, "
            "precedes %r, which occurs %s times; negative sampling assumes that order",
            vocab.filename, early, f"{n_early:,}", late, f"{n_late:,}",
        )  # fmt: skip
    last = max(np.flatnonzero(totals > 1).max(initial=0), vocab.bos, vocab.eos, vocab.unk)
    has_rare = vocab.unk >= 0 and last < vocab.size - 1 and not totals[vocab.unk]
    return counts, int(last) + 1 if has_rare else None


def find_disorder(
    counts: np.ndarray, vocab: Vocabulary
) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Return the two words of a vocabulary whose order is most clearly wrong, the too rare one
    first, each with its count; None if they are sorted by frequency, up to sampling error.

    Args:
        counts: occurrences of each id in a text, integer (V,); those of marks are ignored.
    """
    marks = [i for i in map(vocab.word_to_id, MARKS) if i >= 0]
    ids: np.ndarray = np.delete(np.arange(vocab.size), marks)
    found = counts[ids].astype(float)
    rarest = np.minimum.accumulate(found)[:-1]  # of the words before
    later = found[1:]
    deviations = (later - rarest) / np.sqrt(np.maximum(later + rarest, 1))
    wrong = (deviations > MIN_DEVIATIONS) & (later >= MIN_RATIO * rarest)
    if later[wrong].sum() <= MIN_SHARE * found.sum():
        return None
    late = 1 + int(np.argmax(np.where(wrong, deviations, 0)))
    early = int(np.argmin(found[:late]))
    pair = [(vocab.id_to_word(int(ids[i])), int(found[i])) for i in (early, late)]
    return pair[0], pair[1]


def by_id(words: Counter[str], vocab: Vocabulary) -> np.ndarray:
    """Return the number of occurrences of each id, int64 (V,)."""
    ids = np.fromiter(map(vocab.word_to_id, words), np.int64, len(words))
    numbers = np.fromiter(words.values(), np.int64, len(words))
    is_known = ids >= 0  # the vocabulary may lack `<UNK>`
    return np.bincount(ids[is_known], numbers[is_known], vocab.size).astype(np.int64)
