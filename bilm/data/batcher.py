"""Sentences -> the ids that a pretrained model reads: shifted by one, 0 is padding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bilm.data.alphabet import Alphabet, ByteAlphabet
from bilm.data.characters import BOS, EOS
from bilm.data.sentences import checked_sentences
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.files import expanded


class Batcher:
    """Sentences -> character ids.

    Args:
        lm_vocab_file: not needed, since characters spell every word; if given it must be there.
        max_token_length: C, characters of a word with its two marks. It must be the model's
            `max_characters_per_token`: longer words are cut there, so that with another number
            the model reads other characters and their sentences get other vectors.
    Raises: DataError if the file is not there or `max_token_length` is below 3.
    """

    def __init__(self, lm_vocab_file: str | os.PathLike | None, max_token_length: int):
        if lm_vocab_file is not None and not os.path.isfile(expanded(lm_vocab_file)):
            raise DataError(f"{lm_vocab_file}: no such file; None does for character input")
        self._alphabet: Alphabet = ByteAlphabet(max_token_length)

    @classmethod
    def of(cls, alphabet: Alphabet) -> Batcher:
        """Return the batcher that spells as another alphabet does; C is its `width`."""
        made = cls.__new__(cls)
        made._alphabet = alphabet
        return made

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the characters of a batch, int64 (n, T + 2, C), 0 after a sentence's end.

        T is the longest sentence's number of words; every sentence has `<S>` and `</S>` around
        it. No sentence gives (0, 2, C).

        Raises: DataError if a sentence is not a list of words.
        """
        sentences, spell = checked_sentences(sentences), self._alphabet
        ids = np.zeros((len(sentences), _n_steps(sentences), spell.width), np.int64)
        for row, words in zip(ids, sentences, strict=True):
            row[: len(words) + 2] = shifted(spell([spell.begin, *words, spell.end]))
        return ids


class TokenBatcher:
    """Sentences -> word ids, for a model that reads vectors of words from a table.

    Args:
        lm_vocab_file: one word a line, in the table's order, `<S>` and `</S>` among them, and
            `<UNK>` for words that are not.
    Raises: DataError if the file cannot be read or lacks `<S>` or `</S>`.
    """

    def __init__(self, lm_vocab_file: str | os.PathLike):
        self._vocab = Vocabulary(expanded(lm_vocab_file))
        self._vocab.require_marks((BOS, EOS))

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the words of a batch, int64 (n, T + 2), 0 after a sentence's end.

        No sentence gives (0, 2).

        Raises: DataError if a sentence is not a list of words, or if a word is not in a
            vocabulary without `<UNK>`.
        """
        sentences = checked_sentences(sentences)
        ids = np.zeros((len(sentences), _n_steps(sentences)), np.int64)
        for row, words in zip(ids, sentences, strict=True):
            row[: len(words) + 2] = shifted(self._vocab.known_ids([BOS, *words, EOS]))
        return ids


def shifted(ids: Any) -> Any:
    """Return ids as a model with padding reads them, an array or a tensor: 0 is its padding."""
    return ids + 1


def _n_steps(sentences: list[list[str]]) -> int:
    """Return the length of the longest sentence with its two marks."""
    return max(map(len, sentences), default=0) + 2
