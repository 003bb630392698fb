"""Sentences -> ids as a pretrained model reads them: shifted by one, with 0 for padding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bilm.data.characters import BOS, EOS, Alphabet, ByteAlphabet
from bilm.data.tokenization import checked_sentences
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.support.files import expanded


class Batcher:
    """Sentences -> character ids.

    Args:
        lm_vocab_file: ignored, because characters represent every word; if given, it must exist.
        max_token_length: C, characters of a word with its two marks. It must be the model's
            `max_characters_per_token`: words are truncated to it, so that another number gives
            other vectors to sentences with long words.
    Raises: DataError if the file is missing or `max_token_length` is below 3.
    """

    def __init__(self, lm_vocab_file: str | os.PathLike | None, max_token_length: int):
        if lm_vocab_file is not None and not os.path.isfile(expanded(lm_vocab_file)):
            raise DataError(
                f"{lm_vocab_file}: no such file; character input needs none, so pass None"
            )
        self._alphabet: Alphabet = ByteAlphabet(max_token_length)

    @classmethod
    def of(cls, alphabet: Alphabet) -> Batcher:
        """Return a batcher with another alphabet; C is the alphabet's `width`."""
        made = cls.__new__(cls)
        made._alphabet = alphabet
        return made

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the characters of a batch, int64 (n, T + 2, C), 0 after a sentence's end.

        T is the number of words of the longest sentence. Each sentence is enclosed by `<S>` and
        `</S>`. An empty batch gives (0, 2, C).

        Raises: DataError if a sentence is not a list of words.
        """
        checked, spell = checked_sentences(sentences), self._alphabet
        ids: np.ndarray = np.zeros((len(checked), _n_steps(checked), spell.width), np.int64)
        for row, words in zip(ids, checked, strict=True):
            row[: len(words) + 2] = shifted(spell([spell.begin, *words, spell.end]))
        return ids


class TokenBatcher:
    """Sentences -> word ids, for a model with a table of word vectors.

    Args:
        lm_vocab_file: one word per line, in the table's order, with `<S>` and `</S>`, and with
            `<UNK>` for other words.
    Raises: DataError if the file cannot be read or lacks `<S>` or `</S>`.
    """

    def __init__(self, lm_vocab_file: str | os.PathLike):
        self._vocab = Vocabulary(expanded(lm_vocab_file))
        self._vocab.require_marks((BOS, EOS))

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the words of a batch, int64 (n, T + 2), 0 after a sentence's end.

        An empty batch gives (0, 2).

        Raises: DataError if a sentence is not a list of words, or if a word is missing in a
            vocabulary without `<UNK>`.
        """
        checked = checked_sentences(sentences)
        ids: np.ndarray = np.zeros((len(checked), _n_steps(checked)), np.int64)
        for row, words in zip(ids, checked, strict=True):
            row[: len(words) + 2] = shifted(self._vocab.known_ids([BOS, *words, EOS]))
        return ids


def shifted(ids: Any) -> Any:
    """Return ids, an array or a tensor, plus 1: models with padding reserve 0 for it."""
    return ids + 1


def _n_steps(sentences: list[list[str]]) -> int:
    """Return the length of the longest sentence with its two marks."""
    return max(map(len, sentences), default=0) + 2
