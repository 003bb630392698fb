"""Words -> numbers, of which each word's id and characters are looked up only once."""

from collections.abc import Sequence

import numpy as np

from bilm.data.alphabets import MAX_CACHED_WORDS
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary


class NumberedWords:
    """The words that were read recently, numbered in the order of their first use.

    A word of a large vocabulary is seldom in the processor's cache. With numbers, each word of a
    window needs one access to a dictionary, instead of two for its ids and one for its characters.

    Attributes: `ids`, the id of each number, int32; `characters`, int16 (., C), None if the
        vocabulary has no characters. Both may be longer than the number of words.
    """

    def __init__(self, vocab: Vocabulary):
        self.vocab = vocab
        self._numbers = _Numbers()
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
        if len(self._numbers) > n_known:
            self._look_up(self._numbers.new, n_known)
            self._numbers.new = []
        return numbers

    def _look_up(self, words: list[str], first: int) -> None:
        """Store ids and characters of words, whose numbers start at `first`."""
        end = first + len(words)
        self.ids = _of_length(self.ids, end)
        self.ids[first:end] = self.vocab.known_ids(words)
        if isinstance(self.vocab, UnicodeCharsVocabulary) and self.characters is not None:
            self.characters = _of_length(self.characters, end)
            self.characters[first:end] = self.vocab.spell(words)


class _Numbers(dict):
    """Numbers the words that are looked up, and lists the new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


def _of_length(array: np.ndarray, n: int) -> np.ndarray:
    """Return an array with at least `n` rows that starts with the rows of another one."""
    if n <= len(array):
        return array
    longer: np.ndarray = np.empty((2 * n, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
