"""Words -> the ids of their characters. Nothing is shifted: see `batcher`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bilm.errors import DataError

BOS, EOS = "<S>", "</S>"  # they have characters of their own

# A character is a byte, or one of the marks that follow the 256 bytes.
BOS_CHAR, EOS_CHAR, BOW_CHAR, EOW_CHAR, PAD_CHAR = range(256, 261)
_MARK_LETTERS = {BOS: chr(BOS_CHAR), EOS: chr(EOS_CHAR)}

MAX_CACHED_WORDS, MAX_CACHED_LETTERS = 1 << 17, 256


class CharacterEncoder:
    """The characters of words: a mark, the word's UTF-8 bytes cut to fit, a mark, padding.

    `<S>` and `</S>` have one character each, `BOS_CHAR` and `EOS_CHAR`, in place of their bytes.

    Args:
        max_word_length: C, characters of a word with its two marks; at least 3.
    Raises: DataError if there is no room for a character.
    """

    def __init__(self, max_word_length: int):
        if max_word_length < 3:
            raise DataError(
                f"max_word_length {max_word_length}: at least 3, a character between two marks"
            )
        self.max_word_length = max_word_length
        self._rows = _Rows(max_word_length)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        return _table(map(self._rows.__getitem__, words), self.max_word_length)

    def spell_once(self, words: Iterable[str]) -> np.ndarray:
        """Return the characters of words that will not come again, int32 (n, C)."""
        return _table((_spell(w, self.max_word_length) for w in words), self.max_word_length)


class _Rows(dict):
    """Word -> the bytes of its row, made when first requested; bounded by starting over."""

    def __init__(self, max_word_length: int):
        super().__init__()
        self.max_word_length = max_word_length

    def __missing__(self, word: str) -> bytes:
        if len(self) >= MAX_CACHED_WORDS:
            self.clear()
        row = _spell(word, self.max_word_length)
        if len(word) <= MAX_CACHED_LETTERS:
            self[word] = row
        return row


def _spell(word: str, max_word_length: int) -> bytes:
    """Return a word's row as bytes: a string of its ids, since UTF-32 is an int32 a character."""
    room = max_word_length - 2
    letters = _MARK_LETTERS.get(word)
    if letters is None:
        letters = word[:room].encode("utf-8", "ignore")[:room].decode("latin-1")
    row = chr(BOW_CHAR) + letters + chr(EOW_CHAR)
    return row.ljust(max_word_length, chr(PAD_CHAR)).encode("utf-32-le")


def _table(rows: Iterable[bytes], max_word_length: int) -> np.ndarray:
    # Joining bytes is many times as fast as stacking arrays; a bytearray can be written to.
    return np.frombuffer(bytearray().join(rows), "<i4").reshape(-1, max_word_length)
