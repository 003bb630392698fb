"""Checks of a text before training: signs, counts, and the vocabulary's order."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from bilm.data.marks import MARKS
from bilm.data.shards import Shards, TextCounts, count_tokens
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError

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

    # Occurrences of each word of the vocabulary.
    words: Counter[str] = Counter()
    max_tokens = -(-SAMPLE_TOKENS // len(shards)) if sample else None
    counts = count_tokens(shards, words.update, max_tokens)
    totals = by_id(words, vocab)  # V

    if not sample:
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
    if counts.n_tokens and vocab.unk >= 0:
        unknown = f"{100 * totals[vocab.unk] / counts.n_tokens:.3g} %"
        where = "sample: " if sample else ""
        logging.info("%s%s of the words are not in the vocabulary", where, unknown)
    if check_order:
        _warn_of_disorder(totals, vocab)
    return counts, _first_rare(totals, vocab)


def _warn_of_disorder(totals: np.ndarray, vocab: Vocabulary) -> None:
    """Warn if the vocabulary is not sorted by the occurrences of its words (V,)."""
    disorder = find_disorder(totals, vocab)
    if disorder is not None:
        early, late = disorder
        logging.warning(
            "%s: not sorted by descending frequency in this text: %r, which occurs %s times, "
            "precedes %r, which occurs %s times; negative sampling assumes that order",
            vocab.filename, early.word, f"{early.n:,}", late.word, f"{late.n:,}",
        )  # fmt: skip


def _first_rare(totals: np.ndarray, vocab: Vocabulary) -> int | None:
    """Return the first of the last ids that occur at most once; see `survey`."""
    is_complete = vocab.unk >= 0 and totals[vocab.unk] == 0
    last_frequent = np.flatnonzero(totals > 1).max(initial=0)
    first_rare = int(max(last_frequent, vocab.bos, vocab.eos, vocab.unk)) + 1
    return first_rare if is_complete and first_rare < vocab.size else None


class Occurrences(NamedTuple):
    """A word and how often it occurs in a text."""

    word: str
    n: int


def find_disorder(totals: np.ndarray, vocab: Vocabulary) -> tuple[Occurrences, Occurrences] | None:
    """Return the two words of a vocabulary whose order is most clearly wrong, the too rare one
    first; None if they are sorted by frequency, up to sampling error.

    Args:
        totals: occurrences of each id in a text, integer (V,); those of marks are ignored.
    """
    marks = [i for i in map(vocab.word_to_id, MARKS) if i >= 0]
    ids: np.ndarray = np.delete(np.arange(vocab.size), marks)  # W, without the marks
    n = totals[ids].astype(float)  # W

    # Each word, from the second, and the rarest of the words before it.
    later = n[1:]  # W - 1
    rarest = np.minimum.accumulate(n)[:-1]
    deviations = (later - rarest) / np.sqrt(np.maximum(later + rarest, 1))
    is_wrong = (deviations > MIN_DEVIATIONS) & (later >= MIN_RATIO * rarest)
    if later[is_wrong].sum() <= MIN_SHARE * n.sum():
        return None

    late = 1 + int(np.argmax(np.where(is_wrong, deviations, 0)))
    early = int(np.argmin(n[:late]))
    return (
        Occurrences(vocab.words[ids[early]], int(n[early])),
        Occurrences(vocab.words[ids[late]], int(n[late])),
    )


def by_id(words: Counter[str], vocab: Vocabulary) -> np.ndarray:
    """Return the number of occurrences of each id, int64 (V,)."""
    ids = np.fromiter(map(vocab.word_to_id, words), np.int64, len(words))
    n = np.fromiter(words.values(), np.int64, len(words))
    is_known = ids >= 0  # the vocabulary may lack `<UNK>`
    return np.bincount(ids[is_known], n[is_known], vocab.size).astype(np.int64)


def check_training_text(
    shards: Shards, heldout: Shards | None, vocab_file: str | Path | None
) -> None:
    """Refuse a training text that includes the vocabulary; warn if it includes held-out files.

    Raises: DataError, naming the file.
    """
    files = {os.path.realpath(path) for path in shards}
    if vocab_file is not None and os.path.realpath(vocab_file) in files:
        raise DataError(
            f"{shards.name}: also matches the vocabulary, {vocab_file}; use a pattern that matches "
            "only text"
        )
    both = [path for path in heldout or () if os.path.realpath(path) in files]
    if both:
        logging.warning(
            "%s: also occurs in the training text, so held-out perplexity will be too low",
            ", ".join(both),
        )
