"""Vocabulary files: words -> ids, and words -> ids of their characters."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import repeat, zip_longest

import numpy as np
from absl import logging

from bilm.data.alphabets import BOS_CHAR, BOW_CHAR, EOS_CHAR, EOW_CHAR, PAD_CHAR, ByteAlphabet
from bilm.data.marks import BOS, EOS, MARKS, NOT_A_WORD, UNK
from bilm.data.text import read_lines
from bilm.data.tokenization import checked_sentence
from bilm.errors import DataError
from bilm.options.model_options import ModelOptions
from bilm.support.files import expanded, left_instead
from bilm.support.urls import PathLike


class Vocabulary:
    """Words and their ids.

    The id of a word is its line number, starting at 0. Blank lines are counted; the line
    `!!!MAXTERMID` is not. A repeated word has its last id, as in bilm-tf. The marks may be on any
    line; the id of a missing mark is -1.

    Args:
        filename: one word per line.
        validate_file: whether each mark and each word must occur once, as training requires.
        words: the words of the file, if they have been read already.
    Attributes: `words`, by id, which must not be changed; their number, `size`; ids of marks:
        `bos`, `eos` and `unk`.
    Raises: DataError if the file cannot be read, is empty or is refused.
    """

    def __init__(
        self,
        filename: PathLike,
        validate_file: bool = False,
        words: Sequence[str] | None = None,
    ):
        self.filename = expanded(filename)
        lines = (word for _, word in read_lines(self.filename) if word != NOT_A_WORD)
        self.words = list(lines if words is None else words)
        self.size = len(self.words)
        first = next(filter(str.strip, self.words), "")
        problem = left_instead(first) if first else "empty, expected one word per line"
        if problem:
            raise DataError(f"{self.filename}: {problem}")
        self._ids = {word: i for i, word in enumerate(self.words)}
        self.bos, self.eos, self.unk = (self._ids.get(mark, -1) for mark in MARKS)

        if validate_file:
            self.require_marks()
            if len(self._ids) < self.size:
                word, n = Counter(self.words).most_common(1)[0]
                raise DataError(f"{filename}: {word!r} is on {n} lines; remove all except one")
        unused = [word for i, word in enumerate(self.words) if not word or self._ids[word] != i]
        if unused and words is None:
            _warn_once(
                f"{self.filename}: {len(unused):,} lines are blank or repeat a word, such as "
                f"{unused[0]!r}; no word of a text has their ids. Remove them, unless a model was "
                "trained with them"
            )

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of the words in their order, 64 hexadecimal digits."""
        return hashlib.sha256("\n".join(self.words).encode(errors="surrogatepass")).hexdigest()

    def require_marks(self, marks: Sequence[str] = MARKS) -> None:
        """Raise DataError if the file lacks a mark."""
        missing = [mark for mark in marks if mark not in self._ids]
        if missing:
            raise DataError(
                f"{self.filename}: {' '.join(missing)} missing; the vocabulary must contain the "
                f"marks {' '.join(marks)}, each on a separate line"
            )

    def require_words_of(self, other: Vocabulary) -> None:
        """Raise DataError if another vocabulary has other words, or another order."""
        if self.words == other.words:
            return
        pairs = enumerate(zip_longest(self.words, other.words), start=1)
        place = next(i for i, (mine, theirs) in pairs if mine != theirs)
        raise DataError(
            f"{self.filename}: differs from the model's own words, in {other.filename}, at word "
            f"{place}; if no vocabulary is given, those are used"
        )

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def word_to_id(self, word: str) -> int:
        """Return a word's id; the id of `<UNK>` for other words."""
        return self._ids.get(word, self.unk)

    def known_ids(self, words: Sequence[str]) -> np.ndarray:
        """Return ids, int32 (n,), or that of `<UNK>`. Raises: DataError if it is missing."""
        ids = np.fromiter(map(self._ids.get, words, repeat(self.unk)), np.int32, len(words))
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
        return self.words[word_id]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words of ids, separated by spaces. Raises: DataError as `id_to_word`."""
        return " ".join(self.id_to_word(word_id) for word_id in ids)

    def encode(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the ids of a sentence with a mark at each end, int32 (n + 2,). `reverse`: whether
        the words are already in reverse order: put `</S>` first, `<S>` last. `split`: whether to
        split a string at whitespace. Raises: DataError for another type than a list of strings."""
        ids = [self._ids.get(word, self.unk) for word in _words(sentence, split)]
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([first, *ids, last], np.int32)


@cache
def _warn_once(message: str) -> None:
    logging.warning("%s", message)


class UnicodeCharsVocabulary(Vocabulary):
    """Words, their ids and their characters. Words that are not in the file have characters, too.
    `max_word_length`: C, maximum number of characters of a word with its two marks; at least 3."""

    bos_char, eos_char, bow_char = BOS_CHAR, EOS_CHAR, BOW_CHAR
    eow_char, pad_char = EOW_CHAR, PAD_CHAR

    def __init__(
        self,
        filename: PathLike,
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
        return self.spell(self.words)

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Return the characters of a word, int32 (C,)."""
        return self.spell([word])[0]

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the characters of a sentence, int32 (n + 2, C); see `encode`."""
        first, last = (EOS, BOS) if reverse else (BOS, EOS)
        return self.spell([first, *_words(sentence, split), last])


def _words(sentence: str | Sequence[str], split: bool) -> list[str]:
    if isinstance(sentence, str):
        return sentence.split() if split else list(sentence)
    return sentence if isinstance(sentence, list) else checked_sentence(sentence, "the sentence")


def load_vocab(
    vocab_file: PathLike,
    max_word_length: int | None = None,
    validate_file: bool = True,
    words: Sequence[str] | None = None,
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load a vocabulary: see `UnicodeCharsVocabulary`; without `max_word_length`, one of words."""
    if max_word_length is None:
        return Vocabulary(vocab_file, validate_file, words)
    return UnicodeCharsVocabulary(vocab_file, max_word_length, validate_file, words)


def vocabulary_of(
    vocab_file: PathLike,
    options: ModelOptions,
    n_tokens: int | None,
    marks: Sequence[str] = MARKS,
    words: Sequence[str] | None = None,
) -> Vocabulary | UnicodeCharsVocabulary:
    """Load the vocabulary of a model that has `n_tokens` words; None for a model to train, whose
    file must contain each word once. Raises: DataError, also without one of `marks`."""
    max_word_length = options.char_cnn.max_characters_per_token if options.char_cnn else None
    vocab = load_vocab(vocab_file, max_word_length, n_tokens is None, words)
    vocab.require_marks(marks)
    if n_tokens is not None and vocab.size != n_tokens:
        raise DataError(
            f"{vocab_file}: contains {vocab.size:,} words, but the model was trained with "
            f"{n_tokens:,}; use the vocabulary that the model was trained with"
        )
    return vocab
