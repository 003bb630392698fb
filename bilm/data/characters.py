"""Words -> ids of their characters, by UTF-8 bytes or by a model's lexicons.

Ids are not shifted for padding: see `batcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bilm.errors import DataError
from bilm.options import model_options
from bilm.options.model_options import (
    BOW,
    EOW,
    N_CHARACTERS,
    OOV,
    PAD,
    LexiconEncoderOptions,
    ModelOptions,
)

BOS, EOS = "<S>", "</S>"

# A character is one of 256 bytes or one of five marks.
BOS_CHAR, EOS_CHAR, BOW_CHAR, EOW_CHAR, PAD_CHAR = range(256, 261)
_MARK_LETTERS = {BOS: chr(BOS_CHAR), EOS: chr(EOS_CHAR)}

MAX_CACHED_WORDS, MAX_CACHED_LETTERS = 1 << 17, 256


class CharacterEncoder:
    """The characters of a word: a mark, its UTF-8 bytes, truncated if necessary, a mark, padding.

    `<S>` and `</S>` have one character each, `BOS_CHAR` and `EOS_CHAR`, instead of their bytes.

    Args:
        max_word_length: C, characters of a word with its two marks; at least 3.
    Raises: DataError if `max_word_length` is below 3.
    """

    def __init__(self, max_word_length: int):
        if max_word_length < 3:
            raise DataError(
                f"max_word_length is {max_word_length}, expected at least 3: two marks and a "
                "character"
            )
        self.max_word_length = max_word_length
        self._rows = _Rows(max_word_length)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        return _table(map(self._rows.__getitem__, words), self.max_word_length)

    def spell_once(self, words: Iterable[str]) -> np.ndarray:
        """Return the characters of words without caching them, int32 (n, C)."""
        return _table((_spell(w, self.max_word_length) for w in words), self.max_word_length)


class _Rows(dict):
    """Cache from a word to the bytes of its row; it is emptied when it is full."""

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
    """Return a word's row as bytes; UTF-32 encodes each character of a string as an int32."""
    room = max_word_length - 2
    letters = _MARK_LETTERS.get(word)
    if letters is None:
        letters = word[:room].encode("utf-8", "ignore")[:room].decode("latin-1")
    row = chr(BOW_CHAR) + letters + chr(EOW_CHAR)
    return row.ljust(max_word_length, chr(PAD_CHAR)).encode("utf-32-le")


def _table(rows: Iterable[bytes], max_word_length: int) -> np.ndarray:
    # Joining bytes is much faster than stacking arrays. A bytearray makes the array writable.
    return np.frombuffer(bytearray().join(rows), "<i4").reshape(-1, max_word_length)


def word_lengths(rows: np.ndarray) -> np.ndarray:
    """Return the number of characters of words with their marks: integer (U, C) -> (U,)."""
    return (rows != PAD_CHAR).sum(axis=1)


class ByteAlphabet(CharacterEncoder):
    """bilm-tf's spelling: UTF-8 bytes and five marks.

    Attributes: `begin` and `end`, the words for a sentence's marks; `width`, the columns of a row;
    `n_ids`, the number of ids of each column, int (width,); `n_word_columns`, the columns before
    the characters; `pad`, the id that follows a word's characters.
    """

    begin, end, pad = BOS, EOS, PAD_CHAR
    n_word_columns = 0

    def __init__(self, max_characters: int):
        super().__init__(max_characters)
        self.width = max_characters
        self.n_ids = np.full(max_characters, N_CHARACTERS)

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the number of columns of each row that are not padding, int (n,)."""
        return word_lengths(rows)


class LexiconAlphabet:
    """ELMoForManyLangs' spelling: code points and words by lexicons; see `ByteAlphabet`.

    A word is truncated to C - 2 code points and then looked up. Its characters are enclosed by the
    ids of `<eow>` and `<bow>`, in this order: the original swapped them during training.
    """

    begin, end = model_options.BOS, model_options.EOS
    oov, bow, eow = OOV, BOW, EOW

    def __init__(self, options: LexiconEncoderOptions):
        self.max_characters = options.max_characters_per_token
        self.words = options.words.lexicon if options.words else None
        self.characters = options.characters.lexicon if options.characters else None
        self.pad = self.characters[PAD] if self.characters else 0
        n_ids = [options.words.n_rows] if options.words else []
        self.n_word_columns = len(n_ids)
        if options.characters:
            n_ids += [options.characters.n_rows] * self.max_characters
        self.n_ids = np.array(n_ids)
        self.width = len(n_ids)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words and their characters, int32 (n, width)."""
        rows: np.ndarray = np.full((len(words), self.width), self.pad, np.int32)
        for row, word in zip(rows, words, strict=True):
            word = word[: self.max_characters - 2]
            if self.words is not None:
                row[0] = self.words.get(word, self.words[OOV])
            if self.characters is not None:
                letters = _letters(word, self.characters)
                row[self.n_word_columns : self.n_word_columns + len(letters)] = letters
        return rows

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the number of columns of each row that are not padding, int (n,)."""
        # The rows do not show it, because a character may have the id of padding.
        longest = self.max_characters - 2
        letters = [
            1 if word[:longest] in (self.begin, self.end) else len(word[:longest]) for word in words
        ]
        has_characters = self.characters is not None
        return self.n_word_columns + has_characters * (np.array(letters, int) + 2)


def _letters(word: str, ids: Mapping[str, int]) -> list[int]:
    marks = model_options.BOS, model_options.EOS
    inside = [word] if word in marks else word
    # This order is correct: see `LexiconAlphabet`.
    return [ids[EOW], *(ids.get(letter, ids[OOV]) for letter in inside), ids[BOW]]


Alphabet = ByteAlphabet | LexiconAlphabet


def alphabet_of(options: ModelOptions) -> Alphabet | None:
    """Return a model's alphabet; None if the model reads words of a vocabulary file."""
    if options.char_cnn is not None:
        return ByteAlphabet(options.char_cnn.max_characters_per_token)
    return LexiconAlphabet(options.lexicon_encoder) if options.lexicon_encoder else None
