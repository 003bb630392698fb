"""Words -> ids of their characters, as a model's alphabet spells them."""

from collections.abc import Iterable, Sequence

import numpy as np

from bilm.data.marks import BOS, EOS
from bilm.errors import DataError
from bilm.options import model_options
from bilm.options.model_options import BOW, EOW, OOV, PAD
from bilm.options.schema import MIN_WORD_LENGTH

# A character is one of 256 bytes or one of five marks.
BOS_CHAR, EOS_CHAR, BOW_CHAR, EOW_CHAR, PAD_CHAR = range(256, 261)
MARK_LETTERS = {BOS: chr(BOS_CHAR), EOS: chr(EOS_CHAR)}

MAX_CACHED_WORDS = 1 << 17
MAX_CACHED_LETTERS = 256  # of a word


class ByteAlphabet:
    """bilm-tf's spelling of a word: a mark, its UTF-8 bytes, truncated if necessary, a mark and
    padding. `<S>` and `</S>` are one character each. Attributes: `begin` and `end`, the words for a
    sentence's marks; `width`, C, the columns of a row; `n_ids`, of each column, int (C,)."""

    begin, end = BOS, EOS

    def __init__(self, width: int):
        if width < MIN_WORD_LENGTH:
            raise DataError(
                f"max_word_length is {width}, expected at least {MIN_WORD_LENGTH}: two marks and a "
                "character"
            )
        self.width = width
        self.n_ids = np.full(width, model_options.N_CHARACTERS)
        self._rows = _Rows(width)

    def __call__(self, words: Iterable[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        # Joining bytes is faster than stacking arrays. A bytearray makes the array writable.
        rows = bytearray().join(map(self._rows.__getitem__, words))
        return np.frombuffer(rows, "<i4").reshape(-1, self.width)

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the number of columns of each row that are not padding, int (n,)."""
        return (rows != PAD_CHAR).sum(axis=1)


class _Rows(dict):
    """Cache from a word to the bytes of its row; it is emptied when it is full."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def __missing__(self, word: str) -> bytes:
        if len(self) >= MAX_CACHED_WORDS:
            self.clear()
        # A letter of these strings is a character: a byte, as Latin-1 numbers it, or a mark.
        letters = MARK_LETTERS.get(word)
        if letters is None:
            n_letters = self.width - 2
            utf8 = word[:n_letters].encode("utf-8", "ignore")
            letters = utf8[:n_letters].decode("latin-1")
        spelled = chr(BOW_CHAR) + letters + chr(EOW_CHAR)
        # UTF-32 encodes each letter of a string as an int32.
        row = spelled.ljust(self.width, chr(PAD_CHAR)).encode("utf-32-le")
        if len(word) <= MAX_CACHED_LETTERS:
            self[word] = row
        return row


class LexiconAlphabet:
    """ELMoForManyLangs' spelling: code points and words by lexicons; see `ByteAlphabet`. A word is
    truncated to C - 2 code points and then looked up. Its characters are enclosed by `<eow>` and
    `<bow>`, in this order: the original swapped them during training."""

    begin, end = model_options.BOS, model_options.EOS

    def __init__(self, options: model_options.LexiconEncoderOptions):
        self.max_characters = options.max_characters_per_token
        self.words = options.words
        self.characters = options.characters
        n_ids = [] if self.words is None else [self.words.n_rows]
        self.n_word_columns = len(n_ids)
        if self.characters is not None:
            n_ids += [self.characters.n_rows] * self.max_characters
        self.n_ids = np.array(n_ids)
        self.width = len(n_ids)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words and their characters, int32 (n, width)."""
        pad = 0 if self.characters is None else self.characters.lexicon[PAD]
        rows: np.ndarray = np.full((len(words), self.width), pad, np.int32)
        for row, word in zip(rows, words, strict=True):
            ids = _ids(self.words, [word[: self.max_characters - 2]])
            ids += _ids(self.characters, [EOW, *self._letters(word), BOW])
            row[: len(ids)] = ids
        return rows

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the same by the words, because a character may have the id of padding."""
        if self.characters is None:
            return np.full(len(words), self.n_word_columns)
        n_letters = np.array([len(self._letters(word)) for word in words], int)
        return self.n_word_columns + n_letters + 2

    def _letters(self, word: str) -> Sequence[str]:
        word = word[: self.max_characters - 2]
        return [word] if word in (self.begin, self.end) else word  # a mark is one character


def _ids(table: model_options.TableOptions | None, entries: list[str]) -> list[int]:
    if table is None:
        return []
    unknown = table.lexicon[OOV]
    return [table.lexicon.get(entry, unknown) for entry in entries]


Alphabet = ByteAlphabet | LexiconAlphabet


def alphabet_of(options: model_options.ModelOptions) -> Alphabet | None:
    """Return a model's alphabet; None if the model reads words of a vocabulary file."""
    if options.char_cnn is not None:
        return ByteAlphabet(options.char_cnn.max_characters_per_token)
    if options.lexicon_encoder is not None:
        return LexiconAlphabet(options.lexicon_encoder)
    return None
