"""Words -> ids, those of a file. Nothing is shifted: see `batcher`."""

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
from bilm.files import expanded
from bilm.options import ModelOptions

UNK = "<UNK>"
MARKS = (BOS, EOS, UNK)
NOT_A_WORD = "!!!MAXTERMID"  # a line that some vocabulary files hold and that takes no id


class Vocabulary:
    """Words and their ids.

    A word's id is the number of its line, from 0; the line `!!!MAXTERMID` is not counted, a blank
    line is. Of a word that stands there twice the last id counts, as in bilm-tf. `<S>`, `</S>` and
    `<UNK>` may stand anywhere; ids of those that do not are -1.

    Args:
        filename: one word a line.
        validate_file: refuse a file without the three marks or with a word twice, as training
            and everything that looks words up must.
        words: those of the file, where they are known already.
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
            raise DataError(f"{filename}: no word in it; one word a line is expected")
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
        """Raise DataError if a mark is not in the file."""
        missing = [mark for mark in marks if mark not in self._ids]
        if missing:
            raise DataError(
                f"{self.filename}: {' '.join(missing)} missing; the vocabulary must hold the "
                f"marks {' '.join(marks)}, each on a line of its own"
            )

    def _require_distinct(self) -> None:
        if len(self._ids) == len(self._words):
            return
        first: dict[str, int] = {}
        for number, word in read_lines(self.filename):
            if word != NOT_A_WORD and first.setdefault(word, number) != number:
                raise DataError(
                    f"{self.filename}, line {number}: {word!r} is already on line {first[word]}; "
                    "every word must have one id"
                )

    def require_words_of(self, other: Vocabulary) -> None:
        """Raise DataError if another vocabulary has other words, or in another order."""
        if self._words == other._words:
            return
        pairs = enumerate(zip(self._words, other._words, strict=False))
        line = next((i for i, (a, b) in pairs if a != b), min(self.size, other.size))
        raise DataError(
            f"{self.filename}: differs from {other.filename}, the model's own vocabulary, at word "
            f"{line + 1}; use that one"
        )

    def word_to_id(self, word: str) -> int:
        """Return a word's id, or that of `<UNK>`."""
        return self._ids.get(word, self.unk)

    def known_ids(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words, int32 (n,), `<UNK>` standing for those that are not in the file.

        Raises: DataError if `<UNK>` is needed and is not there.
        """
        ids = np.fromiter((self._ids.get(word, self.unk) for word in words), np.int32, len(words))
        if self.unk < 0 and (ids < 0).any():
            word = words[int(np.argmin(ids))]
            raise DataError(
                f"{self.filename}: holds neither {word!r} nor {UNK}, which would stand for it; "
                "give the vocabulary that the model was trained with"
            )
        return ids

    def id_to_word(self, word_id: int) -> str:
        """Return the word of an id.

        Raises: DataError if there is no such id.
        """
        if not 0 <= word_id < self.size:
            raise DataError(f"{self.filename}: no word has the id {word_id}, of {self.size:,}")
        return self._words[word_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words of ids, with spaces between them.

        Raises: DataError if there is no such id.
        """
        return " ".join(self.id_to_word(word_id) for word_id in ids)

    def encode(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the ids of a sentence with a mark at each end, int32 (n + 2,).

        Args:
            sentence: words with blanks between them, or with `split=False` a list of words.
            reverse: the words come in reverse order already: put `</S>` first and `<S>` last.
            split: whether to split the sentence.
        """
        get, unk = self._ids.get, self.unk
        words = sentence.split() if split else sentence
        ids = [get(word, unk) for word in words]
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([first, *ids, last], np.int32)


class UnicodeCharsVocabulary(Vocabulary):
    """Words, their ids and their characters.

    A word that is not in the file has characters all the same.

    Args:
        filename: one word a line; see `Vocabulary`.
        max_word_length: C, characters of a word with its two marks; at least 3.
        validate_file, words: see `Vocabulary`.
    Raises: DataError if `Vocabulary` does or `max_word_length` is too small.
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
        """The characters of every word of the file, int32 (size, C); made when first used."""
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
        words = sentence.split() if split else sentence
        first, last = (EOS, BOS) if reverse else (BOS, EOS)
        return self.spell([first, *words, last])

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """Return the characters of words, int32 (n, C)."""
        return self._characters(words)


def load_vocab(
    vocab_file: str | os.PathLike, max_word_length: int | None = None, validate_file: bool = True
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load a vocabulary to train or measure with, as bilm-tf's function of this name does.

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
    """Return the vocabulary of a stored model from its words; `source` is what held them."""
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
        options: of the model.
        n_tokens: how many words the model has; None for one that is to be trained, whose
            vocabulary must hold every word once.
        marks: those that the file must hold.
    Raises: DataError as `Vocabulary` does, or if its size is not the model's.
    """
    vocab_file, char_cnn = expanded(vocab_file), options.char_cnn
    length = None if char_cnn is None else char_cnn.max_characters_per_token
    vocab = load_vocab(vocab_file, length, validate_file=n_tokens is None)
    vocab.require_marks(marks)
    if n_tokens is not None and vocab.size != n_tokens:
        raise DataError(
            f"{vocab_file}: {vocab.size:,} words, but the model was trained with {n_tokens:,}"
        )
    return vocab
