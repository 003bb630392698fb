"""Words -> numbers, of which each word's id and characters are looked up only once."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

import numpy as np

from bilm.data.alphabets import MAX_CACHED_WORDS
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary


class NumberedWords:
    """The words that were read recently, numbered in the order of their first use: a word of a
    large vocabulary is seldom in the processor's cache, and with numbers each word of a window
    needs one access to a dictionary, instead of two for its ids and one for its characters.

    Attributes: `ids`, the id of each number, int32; `characters`, int16 (., C), None if the
        vocabulary has no characters. Both may be longer than the number of words.
    """

    def __init__(self, vocab: Vocabulary):
        self.vocab = vocab
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self.ids: np.ndarray = np.empty(0, np.int32)
        self.characters: np.ndarray | None = None
        if isinstance(vocab, UnicodeCharsVocabulary):
            self.characters = np.empty((0, vocab.max_word_length), np.int16)

    def trim(self) -> None:
        """Forget all words if there are too many; their numbers are then invalid."""
        if len(self._numbers) > MAX_CACHED_WORDS:
            self._numbers.clear()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the numbers of words, int64 (n,)."""
        n_known = len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        n_new = len(self._numbers) - n_known
        if not n_new:
            return numbers
        new = list(islice(reversed(self._numbers), n_new))[::-1]
        end = len(self._numbers)
        if end > len(self.ids):  # what is added to the arrays has no meaning
            self.ids = np.resize(self.ids, 2 * end)
            if self.characters is not None:
                self.characters = np.resize(self.characters, (2 * end, self.characters.shape[1]))
        self.ids[n_known:end] = self.vocab.known_ids(new)
        if isinstance(self.vocab, UnicodeCharsVocabulary) and self.characters is not None:
            self.characters[n_known:end] = self.vocab.spell(new)
        return numbers
