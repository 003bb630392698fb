"""The text of a memory as ids, and what predictions need about each place of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bilm.data.marks import BOS, EOS, UNK

REACH = 4  # largest distance at which words are compared one by one


class WordIds:
    """The ids of V words, which are in their order and include the marks. V represents no word."""

    def __init__(self, words: Sequence[str]):
        self.words = words
        self.nothing = len(words)
        self._ids = {word: i for i, word in enumerate(words)}
        self.start, self.end, self.unknown = (self._ids[mark] for mark in (BOS, EOS, UNK))

    def sentence(self, tokens: Sequence[str]) -> np.ndarray:
        """Return the ids of a sentence between its marks, integer (T + 2,)."""
        ids = [self._ids.get(token, self.unknown) for token in tokens]
        return np.array([self.start, *ids, self.end])

    def text(self, sentences: Iterable[Sequence[str]]) -> np.ndarray:
        """Return the ids of sentences, with no word at `REACH` places around each, integer (N,)."""
        gap: np.ndarray = np.full(REACH, self.nothing, np.int32)
        pieces = [gap]
        for tokens in sentences:
            pieces += [self.sentence(tokens), gap]
        return np.concatenate(pieces)


class RememberedText:
    """The N places of a text of S sentences.

    Args:
        ids: integer (N,), as `WordIds.text` returns them. They may end within a sentence.
        vocabulary: the ids of the V words.
    Attributes:
        ids: intp (N,).
        starts: integer (S,): place of the mark at the start of each sentence.
        sentence: integer (N,): number of the sentence that a place belongs to.
        is_predicted: boolean (N,) by view: whether the view predicts the word at a place. A mark is
            predicted only by the view that reads from the other end of the sentence.
        frequencies: float64 (V,): P(w), with 0.5 added to each count.
        is_rare: boolean (V,): whether a word shares its probability with `<UNK>`, as in training:
            words that occur once do, if the text has no unknown words.
    """

    def __init__(self, ids: np.ndarray, vocabulary: WordIds):
        nothing = vocabulary.nothing
        padded = np.pad(ids, REACH, constant_values=nothing)
        self._padded: np.ndarray = padded.astype(np.intp)  # NumPy would convert at each use
        self.ids = self.at_offset(0)

        # Places
        is_start, is_end = ids == vocabulary.start, ids == vocabulary.end
        is_used = ids != nothing
        self.starts = np.flatnonzero(is_start)
        self.sentence = np.maximum(np.cumsum(is_start) - 1, 0)
        self.is_predicted = {
            "both": is_used & ~is_start & ~is_end,
            "forward": is_used & ~is_start,
            "backward": is_used & ~is_end,
        }

        # Words
        counts = np.bincount(ids, minlength=nothing + 1)[:nothing]
        smoothed = counts + 0.5
        has_unknown = counts[vocabulary.unknown] > 0
        self.frequencies = smoothed / smoothed.sum()
        self.is_rare = (counts == 1) & ~has_unknown

    def at_offset(self, offset: int) -> np.ndarray:
        """Return the id at an offset from each place, at most `REACH`: intp (N,)."""
        last = len(self._padded) - REACH
        return self._padded[REACH + offset : last + offset]
