"""The text of a memory as ids, and what predictions need about each place of it."""

from collections.abc import Iterable, Sequence

import numpy as np

from bilm.data.marks import BOS, EOS
from bilm.data.shards import sentence_digest
from bilm.scoring.predicted_words import PredictedWords

REACH = 4  # largest distance at which words are compared one by one


def text_ids(
    sentences: Iterable[Sequence[str]], vocabulary: PredictedWords
) -> tuple[np.ndarray, set[int]]:
    """Return the ids of sentences, int32 (N,), with `REACH` places around each that have the id V,
    which represents no word; and the sentences' digests."""
    gap: np.ndarray = np.full(REACH, len(vocabulary.words), np.int32)
    pieces = [gap]
    digests = set()
    for tokens in sentences:
        pieces += [vocabulary.sentence(tokens), gap]
        digests.add(sentence_digest(tokens))
    return np.concatenate(pieces), digests - {0}


class RememberedText:
    """The N places of a text of S sentences.

    Args:
        ids: as `text_ids` returns them. They may end within a sentence.
    Attributes:
        ids: intp (N,).
        nothing: the id V of a place without a word.
        starts: integer (S,): place of the mark at the start of each sentence.
        sentence: integer (N,): number of the sentence that a place belongs to.
        is_predicted: boolean (N,) by view: whether the view predicts the word at a place. A mark is
            predicted only by the view that reads from the other end of the sentence.
        frequencies: float64 (V,): P(w), with 0.5 added to each count.
        is_rare: boolean (V,): whether a word shares its probability with `<UNK>`, as in training:
            words that occur once do, if the text has no unknown words.
    """

    def __init__(self, ids: np.ndarray, vocabulary: PredictedWords):
        self.nothing = len(vocabulary.words)
        padded = np.pad(ids, REACH, constant_values=self.nothing)
        self._padded = padded.astype(np.intp)  # NumPy would convert at each use
        self.ids = self.at_offset(0)

        # Places
        start, end = vocabulary.ids((BOS, EOS))
        is_start = ids == start
        is_end = ids == end
        is_used = ids != self.nothing
        self.starts = np.flatnonzero(is_start)
        self.sentence = np.maximum(np.cumsum(is_start) - 1, 0)
        self.is_predicted = {
            "both": is_used & ~is_start & ~is_end,
            "forward": is_used & ~is_start,
            "backward": is_used & ~is_end,
        }

        # Words
        counts = np.bincount(ids, minlength=self.nothing + 1)[:-1]
        smoothed = counts + 0.5
        has_unknown = counts[vocabulary.unknown] > 0
        self.frequencies = smoothed / smoothed.sum()
        self.is_rare = (counts == 1) & ~has_unknown

    def at_offset(self, offset: int) -> np.ndarray:
        """Return the id at an offset from each place, at most `REACH`: intp (N,)."""
        last = len(self._padded) - REACH
        return self._padded[REACH + offset : last + offset]
