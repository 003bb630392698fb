"""Features that compare a word v of a context with a word u of the remembered text::

    phi(v, u) = [v = u], log(1 / P(v)) / 10 [v = u], and for each affix whether v and u share it

`<UNK>` is not similar to any word, and a mark only to itself.
"""

import numpy as np

from bilm.data.marks import BOS, EOS
from bilm.scoring.memory.text import REACH, RememberedText
from bilm.scoring.predicted_words import PredictedWords

LEFT = (-4, -3, -2, -1)
RIGHT = (1, 2, 3, 4)
OFFSETS = {  # of the words that each view compares one by one, at most REACH
    "both": LEFT + RIGHT,
    "forward": LEFT,
    "backward": RIGHT,
}
AFFIXES = (slice(-3, None), slice(-2, None), slice(4))  # letters that words may share


class Features:
    """F features of contexts, which are compared with the V words of a text."""

    def __init__(self, vocabulary: PredictedWords, text: RememberedText):
        self._nothing = text.nothing
        self._rarity = -np.log(text.frequencies) / 10
        self._marks = vocabulary.ids((BOS, EOS))
        self._incomparable = text.nothing, vocabulary.unknown

        # Numbers that are equal for equal affixes, (affixes, V + 1)
        self._affixes = np.full((len(AFFIXES), text.nothing + 1), -1)
        for row, letters in zip(self._affixes, AFFIXES, strict=True):
            affixes = [word[letters] for word in vocabulary.words]
            _, row[:-1] = np.unique(affixes, return_inverse=True)

    def of_context(self, view: str, sentence: np.ndarray, place: int) -> np.ndarray:
        """Return phi of a context and of all words u, float32 (offsets + 1, F, V + 1): at each
        offset of the view, and in the last row the sum over the different words of the sentence.

        The context is a place of a sentence with its marks, whose own word has no effect.
        """
        offsets = OFFSETS[view]
        shape = len(offsets) + 1, 2 + len(AFFIXES), self._nothing + 1
        phi: np.ndarray = np.zeros(shape, np.float32)

        # Words at the offsets
        padded = np.pad(sentence, REACH, constant_values=self._nothing)
        for row, offset in zip(phi[:-1], offsets, strict=True):
            self._add(row, padded[REACH + place + offset])

        # Different words on the sides that the view reads
        left = sentence[1:place]
        right = sentence[place + 1 : -1]
        both = np.concatenate([left, right])
        sides = {"forward": left, "backward": right, "both": both}
        for word in np.unique(sides[view]):
            self._add(phi[-1], word)
        return phi

    def _add(self, phi: np.ndarray, word: int) -> None:
        """Add phi(word, u) of all words u to an array, (F, V + 1)."""
        if word in self._incomparable:
            return
        phi[0, word] += 1
        phi[1, word] += self._rarity[word]
        if word not in self._marks:
            phi[2:] += self._affixes == self._affixes[:, [word]]
