"""Vocabulary files: map words to ids. These ids are not shifted for padding; `batcher` shifts
them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from bilm.data.characters import (
    BOS,
    BOS_CHAR,
    BOW_CHAR,
    EOS,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    CharacterEncoder,
)
from bilm.data.text import read_lines
from bilm.errors import DataError
from bilm.options.model_options import ModelOptions
from bilm.support.files import expanded

UNK = "<UNK>"
MARKS = (BOS, EOS, UNK)
NOT_A_WORD = "!!!MAXTERMID"  # a line of some vocabulary files that has no id


class Vocabulary:
    """Words and their ids.

    The id of a word is its line number, starting at 0. Blank lines are counted; the line
    `!!!MAXTERMID` is not. A word that occurs more than once has its last id, as in bilm-tf. `<S>`,
    `</S>` and
    `<UNK>` may be on any line; the id of a missing mark is -1.

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
        if words is None:
            words = [word for _, word in read_lines(self.filename) if word != NOT_A_WORD]
        self._words = list(words)
        if not self._words:
            raise DataError(f"{filename}: empty, expected one word per line")
        self._ids = {word: i for i, word in enumerate(self._words)}
        self.bos, self.eos, self.unk = (self._ids.get(mark, -1) for mark in MARKS)
        if validate_file:
            self.require_marks()
            self._require_distinct()

    @property
    def size(self) -> int:
        """The number of ids."""
        return len(self._words)

    def require_marks(self, marks: Sequence[str] = MARKS) -> None:
        """Raise DataError if the file lacks a mark."""
        missing = [mark for mark in marks if mark not in self._ids]
        if missing:
            raise DataError(
                f"{self.filename}: {' '.join(missing)} missing; the vocabulary must contain the "
                f"marks {' '.join(marks)}, each on a separate line"
            )

    def _require_distinct(self) -> None:
        if len(self._ids) == len(self._words):
            return
        first: dict[str, int] = {}
        for number, word in read_lines(self.filename):
            if word != NOT_A_WORD and first.setdefault(word, number) != number:
                raise DataError(
                    f"{self.filename}, line {number}: {word!r} is already on line {first[word]}; "
                    "remove one of them"
                )

    def require_words_of(self, other: Vocabulary) -> None:
        """Raise DataError if another vocabulary differs in its words or their order."""
        if self._words == other._words:
            return
        pairs = enumerate(zip(self._words, other._words, strict=False))
        line = next((i for i, (a, b) in pairs if a != b), min(self.size, other.size))
        raise DataError(
            f"{self.filename}: differs from {other.filename}, the model's own vocabulary, at word "
            f"{line + 1}; use {other.filename}"
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
                f"unknown words; "
                "use the vocabulary that the model was trained with"
            )
        return ids

    def id_to_word(self, word_id: int) -> str:
        """Return the word of an id.

        Raises: DataError if the id is out of range.
        """
        if not 0 <= word_id < self.size:
            raise DataError(
                f"{self.filename}: the id {word_id} is out of range, expected 0 to {self.size - 1}"
            )
        return self._words[word_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words of ids, separated by spaces.

        Raises: DataError if an id is out of range.
        """
        return " ".join(self.id_to_word(word_id) for word_id in ids)

    def encode(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the ids of a sentence with a mark at each end, int32 (n + 2,).

        Args:
            sentence: words separated by blanks, or a list of words.
            reverse: whether the words are already in reverse order: put `</S>` first, `<S>` last.
            split: whether `sentence` is a string to split.
        """
        get, unk = self._ids.get, self.unk
        words = sentence.split() if split and isinstance(sentence, str) else sentence
        ids = [get(word, unk) for word in words]
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([first, *ids, last], np.int32)


class UnicodeCharsVocabulary(Vocabulary):
    """Words, their ids and their characters. Words that are not in the file have characters, too.

    Args:
        filename: one word per line; see `Vocabulary`.
        max_word_length: C, maximum number of characters of a word including its two marks; at least
            3.
        validate_file, words: see `Vocabulary`.
    Raises: DataError as `Vocabulary` does, or if `max_word_length` is too small.
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
        self._characters = CharacterEncoder(max_word_length)
        self.bos_chars, self.eos_chars = self._characters([BOS, EOS])

    @cached_property
    def word_char_ids(self) -> np.ndarray:
        """The characters of every word of the file, int32 (size, C), computed when first used."""
        return self._characters.spell_once(self._words)

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Return the characters of a word, int32 (C,)."""
        return self._characters([word])[0]

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the characters of a sentence with a mark at each end, int32 (n + 2, C).

        Arguments are those of `encode`.
        """
        words = sentence.split() if split and isinstance(sentence, str) else sentence
        first, last = (EOS, BOS) if reverse else (BOS, EOS)
        return self.spell([first, *words, last])

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        return self._characters(words)


def load_vocab(
    vocab_file: str | os.PathLike, max_word_length: int | None = None, validate_file: bool = True
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load a vocabulary for training or evaluation, like bilm-tf's function of this name.

    Args:
        vocab_file: one word per line, with the three marks.
        max_word_length: characters of a word with its two marks; None for a model that reads words.
        validate_file: see `Vocabulary`.
    Raises: DataError as `Vocabulary` does.
    """
    if max_word_length is None:
        return Vocabulary(vocab_file, validate_file)
    return UnicodeCharsVocabulary(vocab_file, max_word_length, validate_file)


def vocabulary_of_words(
    words: Sequence[str], source: str | os.PathLike, options: ModelOptions
) -> Vocabulary | UnicodeCharsVocabulary:
    """Return a model's vocabulary from its words; `source` is the file that contains them."""
    if options.char_cnn is None:
        return Vocabulary(source, words=words)
    return UnicodeCharsVocabulary(source, options.char_cnn.max_characters_per_token, words=words)


def vocabulary_of(
    vocab_file: str | os.PathLike,
    options: ModelOptions,
    n_tokens: int | None,
    marks: Sequence[str] = MARKS,
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load the vocabulary of a model.

    Args:
        vocab_file: one word per line.
        options: options of the model.
        n_tokens: number of the model's words; None for a model that will be trained, whose
            vocabulary must contain every word once.
        marks: marks that the file must contain.
    Raises: DataError as `Vocabulary` does, or if the vocabulary does not have the model's size.
    """
    char_cnn = options.char_cnn
    length = None if char_cnn is None else char_cnn.max_characters_per_token
    vocab = load_vocab(vocab_file, length, validate_file=n_tokens is None)
    vocab.require_marks(marks)
    if n_tokens is not None and vocab.size != n_tokens:
        raise DataError(
            f"{vocab_file}: contains {vocab.size:,} words, but the model was trained with "
            f"{n_tokens:,}; use the vocabulary that the model was trained with"
        )
    return vocab
