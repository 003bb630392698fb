"""Words -> ids: of their characters, of a vocabulary file, and of batches for pretrained models.

Only `Batcher` and `TokenBatcher` shift ids by one, because models with padding reserve 0 for it.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from absl import logging

from bilm.data.text import read_lines
from bilm.data.tokenization import checked_sentence, checked_sentences
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
from bilm.support.files import expanded

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
MARKS = (BOS, EOS, UNK)
NOT_A_WORD = "!!!MAXTERMID"  # a line of some vocabulary files that has no id

# A character is one of 256 bytes or one of five marks.
BOS_CHAR, EOS_CHAR, BOW_CHAR, EOW_CHAR, PAD_CHAR = range(256, 261)
_MARK_LETTERS = {BOS: chr(BOS_CHAR), EOS: chr(EOS_CHAR)}

MAX_CACHED_WORDS, MAX_CACHED_LETTERS = 1 << 17, 256


# --- characters ---


class ByteAlphabet:
    """bilm-tf's spelling of a word: a mark, its UTF-8 bytes, truncated if necessary, a mark and
    padding.

    `<S>` and `</S>` have one character each, `BOS_CHAR` and `EOS_CHAR`, instead of their bytes.

    Args:
        width: C, characters of a word with its two marks; at least 3.
    Attributes: `begin` and `end`, the words for a sentence's marks; `width`, the columns of a row;
        `n_ids`, the number of ids of each column, int (width,); `n_word_columns`, the columns
        before the characters; `pad`, the id that follows a word's characters.
    Raises: DataError if `width` is below 3.
    """

    begin, end, pad = BOS, EOS, PAD_CHAR
    n_word_columns = 0

    def __init__(self, width: int):
        if width < 3:
            raise DataError(
                f"max_word_length is {width}, expected at least 3: two marks and a character"
            )
        self.width = width
        self.n_ids = np.full(width, N_CHARACTERS)
        self._rows = _Rows(width)

    def __call__(self, words: Iterable[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        # Joining bytes is much faster than stacking arrays. A bytearray makes the array writable.
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
        room = self.width - 2
        letters = _MARK_LETTERS.get(word)
        if letters is None:
            letters = word[:room].encode("utf-8", "ignore")[:room].decode("latin-1")
        row = chr(BOW_CHAR) + letters + chr(EOW_CHAR)
        # UTF-32 encodes each character of a string as an int32.
        found = row.ljust(self.width, chr(PAD_CHAR)).encode("utf-32-le")
        if len(word) <= MAX_CACHED_LETTERS:
            self[word] = found
        return found


class LexiconAlphabet:
    """ELMoForManyLangs' spelling: code points and words by lexicons; see `ByteAlphabet`.

    A word is truncated to C - 2 code points and then looked up. Its characters are enclosed by the
    ids of `<eow>` and `<bow>`, in this order: the original swapped them during training.
    """

    begin, end = model_options.BOS, model_options.EOS

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
            if self.words is not None:
                short = word[: self.max_characters - 2]
                row[0] = self.words.get(short, self.words[OOV])
            if (ids := self.characters) is not None:
                inside = [ids.get(letter, ids[OOV]) for letter in self._letters(word)]
                letters = [ids[EOW], *inside, ids[BOW]]  # this order is correct: see the class
                row[self.n_word_columns : self.n_word_columns + len(letters)] = letters
        return rows

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the number of columns of each row that are not padding, int (n,)."""
        # The rows do not show it, because a character may have the id of padding.
        letters = np.array([len(self._letters(word)) for word in words], int)
        return self.n_word_columns + (self.characters is not None) * (letters + 2)

    def _letters(self, word: str) -> Sequence[str]:
        """Return the characters of a word; the mark of a sentence is one character."""
        word = word[: self.max_characters - 2]
        return [word] if word in (self.begin, self.end) else word


Alphabet = ByteAlphabet | LexiconAlphabet


def alphabet_of(options: ModelOptions) -> Alphabet | None:
    """Return a model's alphabet; None if the model reads words of a vocabulary file."""
    if options.char_cnn is not None:
        return ByteAlphabet(options.char_cnn.max_characters_per_token)
    return LexiconAlphabet(options.lexicon_encoder) if options.lexicon_encoder else None


# --- vocabulary files ---


class Vocabulary:
    """Words and their ids.

    The id of a word is its line number, starting at 0. Blank lines are counted; the line
    `!!!MAXTERMID` is not. A word that occurs more than once has its last id, as in bilm-tf. `<S>`,
    `</S>` and `<UNK>` may be on any line; the id of a missing mark is -1.

    Args:
        filename: one word per line.
        validate_file: whether to raise an error if a mark is missing or a word occurs twice.
            Training requires it.
        words: the words of the file, if they have been read already.
    Raises: DataError if the file cannot be read, is empty or is refused.
    """

    def __init__(
        self,
        filename: str | os.PathLike,
        validate_file: bool = False,
        words: Sequence[str] | None = None,
    ):
        self.filename = expanded(filename)
        lines = (word for _, word in read_lines(self.filename) if word != NOT_A_WORD)
        self._words = list(lines if words is None else words)
        if not self._words:
            raise DataError(f"{filename}: empty, expected one word per line")
        self._ids = {word: i for i, word in enumerate(self._words)}
        self.bos, self.eos, self.unk = (self._ids.get(mark, -1) for mark in MARKS)
        if validate_file:
            self.require_marks()
            if len(self._ids) < self.size:
                word, n = Counter(self._words).most_common(1)[0]
                raise DataError(f"{filename}: {word!r} is on {n} lines; remove all except one")
        odd = [word for i, word in enumerate(self._words) if not word or self._ids[word] != i]
        if odd and words is None:
            _warn_once(
                f"{filename}: {len(odd):,} lines are blank or repeat a word, such as {odd[0]!r}; no"
                " word of a text has their ids. Remove them, unless a model was trained with them"
            )

    @property
    def size(self) -> int:
        """The number of ids."""
        return len(self._words)

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of the words in their order, 64 hexadecimal digits."""
        return hashlib.sha256("\n".join(self._words).encode(errors="surrogatepass")).hexdigest()

    def require_marks(self, marks: Sequence[str] = MARKS) -> None:
        """Raise DataError if the file lacks a mark."""
        missing = [mark for mark in marks if mark not in self._ids]
        if missing:
            raise DataError(
                f"{self.filename}: {' '.join(missing)} missing; the vocabulary must contain the "
                f"marks {' '.join(marks)}, each on a separate line"
            )

    def require_words_of(self, other: Vocabulary) -> None:
        """Raise DataError if another vocabulary differs in its words or their order."""
        if self._words == other._words:
            return
        pairs = enumerate(zip(self._words, other._words, strict=False))
        line = next((i for i, (a, b) in pairs if a != b), min(self.size, other.size))
        raise DataError(
            f"{self.filename}: differs from the model's own words, in {other.filename}, at word "
            f"{line + 1}; if no vocabulary is given, those are used"
        )

    def word_to_id(self, word: str) -> int:
        """Return a word's id; the id of `<UNK>` for other words."""
        return self._ids.get(word, self.unk)

    def known_ids(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words, int32 (n,), with the id of `<UNK>` for words not in the file.

        Raises: DataError if `<UNK>` is needed but missing.
        """
        ids = np.fromiter((self._ids.get(word, self.unk) for word in words), np.int32, len(words))
        if self.unk < 0 and (ids < 0).any():
            word = words[int(np.argmin(ids))]
            raise DataError(
                f"{self.filename}: contains neither {word!r} nor {UNK}, the replacement for "
                "unknown words; use the vocabulary that the model was trained with"
            )
        return ids

    def id_to_word(self, word_id: int) -> str:
        """Return the word of an id. Raises: DataError if the id is out of range."""
        if not 0 <= word_id < self.size:
            raise DataError(
                f"{self.filename}: the id {word_id} is out of range, expected 0 to {self.size - 1}"
            )
        return self._words[word_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words of ids, separated by spaces. Raises: DataError as `id_to_word`."""
        return " ".join(self.id_to_word(word_id) for word_id in ids)

    def encode(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the ids of a sentence with a mark at each end, int32 (n + 2,).

        Args:
            sentence: words separated by whitespace, or a list of words.
            reverse: whether the words are already in reverse order: put `</S>` first, `<S>` last.
            split: whether `sentence` is a string to split.
        Raises: DataError if `sentence` is neither a string nor an ordered collection of strings.
        """
        get, unk = self._ids.get, self.unk
        ids = [get(word, unk) for word in _words(sentence, split)]
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([first, *ids, last], np.int32)


@cache
def _warn_once(message: str) -> None:
    logging.warning("%s", message)


class UnicodeCharsVocabulary(Vocabulary):
    """Words, their ids and their characters. Words that are not in the file have characters, too.

    Args:
        filename: one word per line; see `Vocabulary`.
        max_word_length: C, maximum number of characters of a word including its two marks; at least
            3.
        validate_file, words: see `Vocabulary`.
    Raises: DataError as `Vocabulary` does.
    """

    bos_char, eos_char, bow_char = BOS_CHAR, EOS_CHAR, BOW_CHAR
    eow_char, pad_char = EOW_CHAR, PAD_CHAR

    def __init__(
        self,
        filename: str | os.PathLike,
        max_word_length: int,
        validate_file: bool = False,
        words: Sequence[str] | None = None,
    ):
        super().__init__(filename, validate_file, words)
        self.max_word_length = max_word_length
        self.spell = ByteAlphabet(max_word_length)  # words -> characters, int32 (n, C)
        self.bos_chars, self.eos_chars = self.spell([BOS, EOS])

    @cached_property
    def word_char_ids(self) -> np.ndarray:
        """The characters of every word of the file, int32 (size, C), computed when first used."""
        return self.spell(self._words)

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Return the characters of a word, int32 (C,)."""
        return self.spell([word])[0]

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the characters of a sentence with a mark at each end, int32 (n + 2, C).

        Arguments are those of `encode`.
        """
        first, last = (EOS, BOS) if reverse else (BOS, EOS)
        return self.spell([first, *_words(sentence, split), last])


def _words(sentence: str | Sequence[str], split: bool) -> list[str]:
    """Return the words of a sentence; the characters of a string that must not be split."""
    if isinstance(sentence, str):
        return sentence.split() if split else list(sentence)
    return sentence if isinstance(sentence, list) else checked_sentence(sentence, "the sentence")


def load_vocab(
    vocab_file: str | os.PathLike,
    max_word_length: int | None = None,
    validate_file: bool = True,
    words: Sequence[str] | None = None,
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load a vocabulary for training or evaluation, like bilm-tf's function of this name.

    Args: see `UnicodeCharsVocabulary`; `max_word_length` is None for a model that reads words.
    Raises: DataError as `Vocabulary` does.
    """
    if max_word_length is None:
        return Vocabulary(vocab_file, validate_file, words)
    return UnicodeCharsVocabulary(vocab_file, max_word_length, validate_file, words)


def vocabulary_of(
    vocab_file: str | os.PathLike,
    options: ModelOptions,
    n_tokens: int | None,
    marks: Sequence[str] = MARKS,
    words: Sequence[str] | None = None,
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load the vocabulary of a model.

    Args:
        vocab_file: one word per line.
        options: options of the model.
        n_tokens: number of the model's words; None for a model that will be trained, whose
            vocabulary must contain every word once.
        marks: marks that the file must contain.
        words: see `Vocabulary`.
    Raises: DataError as `Vocabulary` does, or if the vocabulary does not have the model's size.
    """
    char_cnn = options.char_cnn
    length = None if char_cnn is None else char_cnn.max_characters_per_token
    vocab = load_vocab(vocab_file, length, n_tokens is None, words)
    vocab.require_marks(marks)
    if n_tokens is not None and vocab.size != n_tokens:
        raise DataError(
            f"{vocab_file}: contains {vocab.size:,} words, but the model was trained with "
            f"{n_tokens:,}; use the vocabulary that the model was trained with"
        )
    return vocab


# --- batches for pretrained models ---


class Batcher:
    """Sentences -> character ids.

    Args:
        lm_vocab_file: ignored, because characters represent every word.
        max_token_length: C, characters of a word with its two marks. It must be the model's
            `max_characters_per_token`: words are truncated to it, so that another number gives
            other vectors to sentences with long words.
        alphabet: an alphabet of width C; None for the bytes of words.
    """

    def __init__(
        self,
        lm_vocab_file: str | os.PathLike | None,
        max_token_length: int,
        alphabet: Alphabet | None = None,
    ):
        self._alphabet: Alphabet = alphabet or ByteAlphabet(max_token_length)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the characters of a batch, int64 (n, T + 2, C), 0 after a sentence's end.

        T is the number of words of the longest sentence. Each sentence is enclosed by `<S>` and
        `</S>`. An empty batch gives (0, 2, C).

        Raises: DataError if a sentence is not a list of words.
        """
        spell = self._alphabet
        return _padded(sentences, spell, (spell.begin, spell.end), (spell.width,))


class TokenBatcher:
    """Sentences -> word ids, for a model with a table of word vectors.

    Args:
        lm_vocab_file: one word per line, in the table's order, with `<S>` and `</S>`, and with
            `<UNK>` for other words.
    Raises: DataError if the file cannot be read or lacks `<S>` or `</S>`.
    """

    def __init__(self, lm_vocab_file: str | os.PathLike):
        self._vocab = Vocabulary(lm_vocab_file)
        self._vocab.require_marks((BOS, EOS))

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the words of a batch, int64 (n, T + 2), 0 after a sentence's end.

        An empty batch gives (0, 2).

        Raises: DataError if a sentence is not a list of words, or if a word is missing in a
            vocabulary without `<UNK>`.
        """
        return _padded(sentences, self._vocab.known_ids, (BOS, EOS), ())


def _padded(
    sentences: Iterable[Iterable[str]],
    encode: Callable[[list[str]], np.ndarray],
    marks: tuple[str, str],
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return the shifted ids of sentences with their marks, int64 (n, T + 2, ...)."""
    checked, (begin, end) = checked_sentences(sentences), marks
    n_steps = max(map(len, checked), default=0) + 2
    ids: np.ndarray = np.zeros((len(checked), n_steps, *shape), np.int64)
    for row, words in zip(ids, checked, strict=True):
        row[: len(words) + 2] = shifted(encode([begin, *words, end]))
    return ids


def shifted(ids: Any) -> Any:
    """Return ids, an array or a tensor, plus 1: models with padding reserve 0 for it."""
    return ids + 1
