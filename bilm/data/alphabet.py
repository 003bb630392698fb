"""How a model's tokens are spelled: words -> rows of ids, by bytes or by the model's lexicons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bilm.data import characters
from bilm.data.characters import CharacterEncoder
from bilm.data.windows import word_lengths
from bilm.lexicon_options import BOS, BOW, EOS, EOW, OOV, PAD, LexiconEncoderOptions
from bilm.options import ModelOptions
from bilm.rules import N_CHARACTERS


class ByteAlphabet(CharacterEncoder):
    """UTF-8 bytes and five marks, as bilm-tf spells.

    Attributes: `begin` and `end`, the words that stand for the marks of a sentence; `width` of a
    row; `n_ids` of each of its columns, int (width,); `n_word_columns` before those of characters;
    `pad`, the id after a word's characters.
    """

    begin, end, pad = characters.BOS, characters.EOS, characters.PAD_CHAR
    n_word_columns = 0

    def __init__(self, max_characters: int):
        super().__init__(max_characters)
        self.width = max_characters
        self.n_ids = np.full(max_characters, N_CHARACTERS)

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return how many columns of the words' rows are not padding, int (n,)."""
        return word_lengths(rows)


class LexiconAlphabet:
    """Code points and whole words by lexicons, as ELMoForManyLangs spells; see `ByteAlphabet`.

    A word is cut to C - 2 code points, then it is looked up. Its characters stand between the ids
    of `<eow>` and `<bow>`, in this order, which the original has swapped in training too.
    """

    begin, end = BOS, EOS

    def __init__(self, options: LexiconEncoderOptions):
        self.max_characters = options.max_characters_per_token
        self.words = options.words and options.words.lexicon
        self.characters = options.characters and options.characters.lexicon
        self.pad = self.characters[PAD] if self.characters else 0
        n_ids = [options.words.n_rows] if options.words else []
        self.n_word_columns = len(n_ids)
        if options.characters:
            n_ids += [options.characters.n_rows] * self.max_characters
        self.n_ids = np.array(n_ids)
        self.width = len(n_ids)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words, int32 (n, width): the word's, then those of its characters."""
        rows = np.full((len(words), self.width), self.pad, np.int32)
        for row, word in zip(rows, words, strict=True):
            word = word[: self.max_characters - 2]
            if self.words is not None:
                row[0] = self.words.get(word, self.words[OOV])
            if self.characters is not None:
                letters = _letters(word, self.characters)
                row[self.n_word_columns : self.n_word_columns + len(letters)] = letters
        return rows

    def lengths(self, words: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return how many columns of the words' rows are not padding, int (n,)."""
        # Not by the ids: a character may share that of padding.
        longest = self.max_characters - 2
        letters = [1 if word[:longest] in (BOS, EOS) else len(word[:longest]) for word in words]
        has_characters = self.characters is not None
        return self.n_word_columns + has_characters * (np.array(letters, int) + 2)


def _letters(word: str, ids: Mapping[str, int]) -> list[int]:
    inside = [word] if word in (BOS, EOS) else word
    return [ids[EOW], *(ids.get(letter, ids[OOV]) for letter in inside), ids[BOW]]


Alphabet = ByteAlphabet | LexiconAlphabet


def alphabet_of(options: ModelOptions) -> Alphabet | None:
    """Return the alphabet of a model; None where it reads words of a vocabulary file."""
    if options.char_cnn is not None:
        return ByteAlphabet(options.char_cnn.max_characters_per_token)
    return options.lexicon_encoder and LexiconAlphabet(options.lexicon_encoder)
