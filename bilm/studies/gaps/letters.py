"""Letters of words: how probable it is that an unknown word matches a token with a gap."""

from collections import Counter
from collections.abc import Iterable, Sequence
from unicodedata import normalize

import numpy as np

MAX_LETTERS = 250  # of the alphabet, the most frequent ones; others are equal
ADDED = 0.05  # to each count
EDGE, OTHER = 0, 1  # numbers of the edge of a word and of other letters
EDGE_MARK = "\0"


class Letters:
    """Bigrams of the letters of words, each counted once. They predict words that none of them is,
    as these are inflected and derived in the same ways."""

    def __init__(self, words: Iterable[str]):
        text = EDGE_MARK.join(["", *(normalize("NFC", word) for word in words), ""])
        frequent = Counter(text.replace(EDGE_MARK, "")).most_common(MAX_LETTERS)
        self._numbers = {letter: i for i, (letter, _) in enumerate(frequent, OTHER + 1)}
        self._numbers[EDGE_MARK] = EDGE

        numbers = np.array(self._of(text))
        n = len(self._numbers) + 1
        counts = np.bincount(numbers[:-1] * n + numbers[1:], minlength=n * n).reshape(n, n)
        smoothed = counts + ADDED
        smoothed[EDGE, EDGE] = 0  # a word has a letter
        self._next = smoothed / smoothed.sum(axis=1, keepdims=True)
        self._letter = self._next.copy()  # without the end of the word
        self._letter[:, EDGE] = 0
        self._letters = np.linalg.inv(np.eye(n) - self._letter)  # none or more

    def _of(self, letters: str) -> list[int]:
        return [self._numbers.get(letter, OTHER) for letter in letters]

    def log_match(self, pieces: Sequence[str | int]) -> float:
        """Return the log-probability that an unknown word matches: see `gap_marks.pieces`."""
        one_hot = np.eye(len(self._next))
        state = one_hot[EDGE]  # P(letters so far) by the last letter
        for piece in pieces:
            if isinstance(piece, str):
                for number in self._of(piece):
                    state = (state @ self._next) * one_hot[number]
            else:
                for _ in range(max(piece, 1)):
                    state = state @ self._letter
                if not piece:
                    state = state @ self._letters
        probability = state @ self._next[:, EDGE]
        return float(np.log(max(probability, np.finfo(float).tiny)))
