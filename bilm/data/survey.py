"""Reads a training text once before training: counts, a sample, and held-out sentences in it."""

import os
from array import array
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from bilm.data.marks import MARKS
from bilm.data.shards import Shards, TextCounts, sentence_digest
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.support.progress import Progress

SAMPLE_TOKENS = 1_000_000  # of a sample of a text
LONG_TEXT = 10 * SAMPLE_TOKENS  # predictions of a text that is not counted if they are given
# Disorder: words MIN_RATIO times as frequent as one before them, by MIN_DEVIATIONS standard
# deviations, are MIN_SHARE of the text: 0.9 in alphabetical order, at most 0.3 in other texts.
MIN_RATIO = 2
MIN_DEVIATIONS = 4
MIN_SHARE = 0.5


class Survey(NamedTuple):
    """What is known of a text, of which all or only the sample was read."""

    counts: TextCounts  # of what was read
    totals: np.ndarray  # occurrences of each id in them, int64 (V,)
    # Ids of `</S>` and of the predictions in the first lines of each file, with `SAMPLE_TOKENS`
    # words in total: int64 (N + 1,).
    sample: np.ndarray
    is_whole: bool
    repeated: Collection[int] = ()  # digests of held-out sentences that the whole text contains


def survey(
    shards: Shards, vocab: Vocabulary, is_whole: bool = True, heldout: Shards | None = None
) -> Survey:
    """Read a text, whole or only the sample. Compare a whole text with held-out text. Raises:
    DataError."""
    max_sample = -(-SAMPLE_TOKENS // len(shards.paths))
    heldout_digests = heldout.digests() if heldout and is_whole else set()
    repeated: set[int] = set()
    words: Counter[str] = Counter()
    sample = array("i", [vocab.eos])
    n_sentences = n_tokens = 0
    counted = Progress("counting", "files", len(shards.paths))
    for path in counted.over(shards.paths):
        n_read = 0  # words of this file
        for sentence in shards.sentences_of(path):
            if n_read < max_sample:
                sample.frombytes(vocab.known_ids(sentence).tobytes())
                sample.append(vocab.eos)
            elif not is_whole:
                break
            repeated |= heldout_digests & {sentence_digest(sentence)}
            words.update(sentence)
            n_sentences += 1
            n_read += len(sentence)
        n_tokens += n_read
    if not n_sentences:
        raise DataError(f"{shards.name}: no sentence; every line is blank")
    counts = TextCounts(n_sentences, n_tokens)

    # Different words may have the id of <UNK>.
    ids = np.fromiter(map(vocab.word_to_id, words), np.int64, len(words))
    n_occurrences = np.fromiter(words.values(), np.int64, len(words))
    totals = np.bincount(ids, n_occurrences, vocab.size).astype(np.int64)
    return Survey(counts, totals, np.array(sample, np.int64), is_whole, repeated)


def log_survey(survey: Survey, vocab: Vocabulary, check_order: bool = True) -> None:
    """Log the counts, the share of unknown words, and, if `check_order`, a wrong order of words.
    Raises: DataError if all words are unknown."""
    counts = survey.counts
    if survey.is_whole:
        logging.info("%d sentences, %d predictions", counts.n_sentences, counts.n_predictions)
    n_unknown = survey.totals[vocab.unk]
    if n_unknown == counts.n_tokens:
        raise DataError(
            f"{vocab.filename}: contains no word of the training text; expected a vocabulary of "
            "this text, see bilm vocab"
        )
    unknown = f"{100 * n_unknown / counts.n_tokens:.3g} %"
    where = "" if survey.is_whole else "sample: "
    logging.info("%s%s of the training words are not in the vocabulary", where, unknown)
    disorder = find_disorder(survey.totals, vocab) if check_order else None
    if disorder is not None:
        early, late = disorder
        logging.warning(
            "%s: not sorted by descending frequency in this text: %r, which occurs %s times, "
            "precedes %r, which occurs %s times; negative sampling assumes that order",
            vocab.filename, vocab.words[early], f"{survey.totals[early]:,}",
            vocab.words[late], f"{survey.totals[late]:,}",
        )  # fmt: skip


def once_from(survey: Survey, vocab: Vocabulary) -> int | None:
    """Return the first id of the vocabulary's last words, which occur at most once; None for a text
    with unknown words or that was not read whole, and if there are no such words."""
    is_complete = survey.is_whole and survey.totals[vocab.unk] == 0
    last_frequent = np.flatnonzero(survey.totals > 1).max(initial=0)
    first_rare = int(max(last_frequent, vocab.bos, vocab.eos, vocab.unk)) + 1
    return first_rare if is_complete and first_rare < vocab.size else None


def find_disorder(totals: np.ndarray, vocab: Vocabulary) -> tuple[int, int] | None:
    """Return the ids of the two words of a vocabulary whose order is most clearly wrong, first of
    the too rare one; None if they are sorted, up to sampling error. `totals`: see `Survey`."""
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
    return int(ids[early]), int(ids[late])


def check_training_text(shards: Shards, heldout: Shards | None, vocab_file: str | Path) -> None:
    """Raise DataError if a text includes the vocabulary; warn if it includes held-out files."""
    files = {os.path.realpath(path) for path in shards.paths}
    if os.path.realpath(vocab_file) in files:
        raise DataError(
            f"{shards.name}: also matches the vocabulary, {vocab_file}; use a pattern that matches "
            "only text"
        )
    heldout_files = heldout.paths if heldout else ()
    both = [path for path in heldout_files if os.path.realpath(path) in files]
    if both:
        logging.warning(
            "%s: also occurs in the training text, so held-out perplexity will be too low",
            ", ".join(both),
        )
