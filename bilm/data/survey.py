"""Checks of a text before training: counts, tokenization, and the vocabulary's order."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
from absl import logging

from bilm.data.shards import MAX_LOOKED_AT, Shards, TextCounts, count_tokens
from bilm.data.tokenization import SAMPLE_WORDS, TokenizationCheck
from bilm.data.vocabulary import MARKS, Vocabulary
from bilm.support.urls import is_url

SAMPLE_TOKENS = 1_000_000  # number of tokens read if `sample`
# Disorder is reported if a word is at least MIN_RATIO times as frequent as one before it, by
# MIN_DEVIATIONS standard deviations, and if such words make up MIN_SHARE of the text.
MIN_RATIO, MIN_DEVIATIONS, MIN_SHARE = 2, 4, 0.01


def survey(
    shards: Shards, vocab: Vocabulary, check_order: bool = True, sample: bool = False
) -> TextCounts:
    """Count the text and log what is skipped, truncated, replaced or out of order.

    Args:
        shards: the files.
        vocab: vocabulary that the text will be read with.
        check_order: whether to compare the vocabulary's order with the frequencies in the text.
        sample: read only the first lines of each file, `SAMPLE_TOKENS` in total.
    Returns: the counts of the text or the sample.
    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    check_tokenization(shards)
    words: Counter[str] = Counter()
    max_length, where = getattr(vocab, "max_word_length", None), "sample: " if sample else ""
    # Two of the `max_word_length` characters are the begin and end marks of the word.
    max_bytes = None if max_length is None else max_length - 2
    counts = count_tokens(
        shards,
        max_word_bytes=max_bytes,
        on_words=words.update if check_order else None,
        max_tokens=-(-SAMPLE_TOKENS // len(shards)) if sample else None,
    )
    if not sample:
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
    if counts.n_blank:
        logging.info("%s%s blank lines, which are skipped", where, f"{counts.n_blank:,}")
    if counts.n_long:
        logging.info(
            "%s%s words, %.2g %%, have more than %d bytes and are truncated",
            where, f"{counts.n_long:,}", 100 * counts.n_long / counts.n_tokens, max_bytes,
        )  # fmt: skip
    if counts.n_replaced:
        logging.warning(
            "%s%s lines contain U+FFFD, as which invalid UTF-8 is read",
            where, f"{counts.n_replaced:,}",
        )  # fmt: skip
    if check_order:
        _check_words(counts, by_id(words, vocab), vocab, where)
    return counts


def _check_words(counts: TextCounts, totals: np.ndarray, vocab: Vocabulary, where: str) -> None:
    """Log how many words are unknown, and warn if the vocabulary is not sorted by frequency."""
    if counts.n_tokens and vocab.unk >= 0:
        share = 100 * totals[vocab.unk] / counts.n_tokens
        logging.info("%s%.2g %% of the words are not in the vocabulary", where, share)
    if (disorder := find_disorder(totals, vocab)) is not None:
        (early, n_early), (late, n_late) = disorder
        logging.warning(
            "%s: not sorted by descending frequency in this text: %r, which occurs %s times, "
            "precedes %r, which occurs %s times; negative sampling assumes that order",
            vocab.filename, early, f"{n_early:,}", late, f"{n_late:,}",
        )  # fmt: skip


def check_tokenization(shards: Shards) -> bool:
    """Warn if the first lines of a text are not tokenized; return whether a warning was logged.

    Pipes are skipped, because they can be read only once. Of URLs, the first `MAX_LOOKED_AT` are
    read.

    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    files = [path for path in shards if os.path.isfile(path)]
    files += list(filter(is_url, shards))[:MAX_LOOKED_AT]
    if not files:
        return False
    name = files[0] if len(shards) == 1 else f"{files[0]} and {len(shards) - 1} more"
    check = TokenizationCheck(name)
    n_words = -(-SAMPLE_WORDS // len(files))
    count_tokens(Shards(files, shards.on_bad_utf8), on_words=check.add, max_tokens=n_words)
    return check.warn()


def find_disorder(
    counts: np.ndarray, vocab: Vocabulary
) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Find the two words of a vocabulary whose order is most clearly wrong.

    Args:
        counts: occurrences of each id in a text, integer (V,).
        vocab: the words; the position of marks is ignored.
    Returns: the earlier word, which is too rare, and the later one, each with its count; None if
        words are sorted by descending frequency, up to sampling error.
    """
    marks = [i for i in map(vocab.word_to_id, MARKS) if i >= 0]
    ids: np.ndarray = np.delete(np.arange(vocab.size), marks)
    found = counts[ids].astype(float)
    if len(found) < 2:
        return None
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
    totals: np.ndarray = np.zeros(vocab.size, np.int64)
    np.add.at(totals, ids, numbers)
    return totals
