"""A look at the text before a run: how much there is, and what in it is not as it should be."""

from __future__ import annotations

import numpy as np
from absl import logging

from bilm.data.shards import Shards, TextCounts, count_tokens
from bilm.data.tokenization_check import check_tokenization
from bilm.data.vocabulary import MARKS, Vocabulary

SAMPLE_TOKENS = 1_000_000  # looked at where the text is not counted
COUNTED_AT_ONCE = 1 << 18  # words
# A word out of place is reported if it is at least so many times as frequent as one before it, by
# more than chance allows, and if such words are more than this share of the text.
MIN_RATIO, MIN_DEVIATIONS, MIN_SHARE = 2, 4, 0.01


def survey(
    shards: Shards,
    vocab: Vocabulary,
    check_order: bool = True,
    sample: bool = False,
) -> TextCounts:
    """Count the text and say on the log what is skipped, cut, replaced or out of order.

    Args:
        shards: the files.
        vocab: what the text is read with.
        check_order: whether to compare the vocabulary's order with the frequencies in the text.
        sample: look at the first lines of each file only, `SAMPLE_TOKENS` in all.
    Returns: the counts, of the sample alone if requested.
    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    check_tokenization(shards)
    words = _WordCounts(vocab)
    max_length = getattr(vocab, "max_word_length", None)
    max_bytes = None if max_length is None else max_length - 2  # but for the word's two marks
    counts = count_tokens(
        shards,
        on_shard=None if sample else _log_shard,
        max_word_bytes=max_bytes,
        on_words=words.add if check_order else None,
        max_tokens=-(-SAMPLE_TOKENS // len(shards)) if sample else None,
    )
    if not sample:
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
    _report(counts, max_bytes, "of the first lines: " if sample else "")
    if check_order and counts.n_tokens and vocab.unk >= 0:
        logging.info(
            "%s%.2g %% of the words are not in the vocabulary",
            "of the first lines: " if sample else "",
            100 * words.total()[vocab.unk] / counts.n_tokens,
        )
    disorder = find_disorder(words.total(), vocab) if check_order else None
    if disorder is not None:
        (early, n_early), (late, n_late) = disorder
        logging.warning(
            "%s: not by falling frequency in this text: %r, which comes %s times, stands before "
            "%r, which comes %s times; the sampled softmax takes its negatives by that order",
            vocab.filename, early, f"{n_early:,}", late, f"{n_late:,}",
        )  # fmt: skip
    return counts


def find_disorder(
    counts: np.ndarray, vocab: Vocabulary
) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Find two words of a vocabulary that stand in the wrong order, the worst there are.

    Args:
        counts: how often each id comes in a text, integer (V,).
        vocab: the words; marks may stand anywhere.
    Returns: the earlier word, which is too rare, and the later one, each with its count; None if
        the order is right, or wrong by no more than samples differ.
    """
    marks = [i for i in map(vocab.word_to_id, MARKS) if i >= 0]
    ids = np.delete(np.arange(vocab.size), marks)
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


class _WordCounts:
    """Counts the words of a vocabulary, many at a time."""

    def __init__(self, vocab: Vocabulary):
        self._vocab, self._words = vocab, []
        self._counts = np.zeros(vocab.size, np.int64)

    def add(self, words: list[str]) -> None:
        self._words += words
        if len(self._words) >= COUNTED_AT_ONCE:
            self.total()

    def total(self) -> np.ndarray:
        """Return how often each id came, int64 (V,)."""
        ids = self._vocab.encode(self._words, split=False)[1:-1]
        self._counts += np.bincount(ids, minlength=self._vocab.size)
        self._words.clear()
        return self._counts


def _report(counts: TextCounts, max_bytes: int | None, where: str) -> None:
    if counts.n_blank:
        logging.info("%s%s empty lines, which are skipped", where, f"{counts.n_blank:,}")
    if counts.n_long:
        share = 100 * counts.n_long / counts.n_tokens
        logging.info(
            "%s%s words, %.2g %%, have more than %d bytes; the rest of such a word is not read",
            where, f"{counts.n_long:,}", share, max_bytes,
        )  # fmt: skip
    if counts.n_replaced:
        logging.warning(
            "%s%s lines are not UTF-8; U+FFFD stands for what cannot be read",
            where, f"{counts.n_replaced:,}",
        )  # fmt: skip


def _log_shard(k: int, n: int) -> None:
    if k % 10 == 0:
        logging.info("counting: shard %d of %d", k, n)
