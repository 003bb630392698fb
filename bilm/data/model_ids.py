"""The ids that models for embedding read: 1 more than those of vocabularies; 0 is padding."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bilm.data.alphabets import Alphabet, ByteAlphabet, alphabet_of
from bilm.data.marks import BOS, EOS
from bilm.data.tokenization import checked_sentences
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.options.model_options import ModelOptions
from bilm.support.urls import PathLike


class Batcher:
    """Sentences -> character ids. `lm_vocab_file` is ignored, because characters represent every
    word. `max_token_length`: C, characters of a word with its two marks. It must be the model's
    `max_characters_per_token`: another number gives long words other vectors. `alphabet`: an
    alphabet of width C; None for the bytes of words."""

    def __init__(
        self,
        lm_vocab_file: PathLike | None,
        max_token_length: int,
        alphabet: Alphabet | None = None,
    ):
        self._alphabet: Alphabet = alphabet or ByteAlphabet(max_token_length)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the characters of a batch, int64 (n, T + 2, C), 0 after a sentence's end; T is the
        number of words of the longest sentence, and `<S>` and `</S>` enclose each one. An empty
        batch gives (0, 2, C). Raises: DataError if a sentence is not a list of words."""
        spell = self._alphabet
        return padded(sentences, spell, [spell.begin], [spell.end], (spell.width,))


class TokenBatcher:
    """Sentences -> word ids, for a model with a table of word vectors. `lm_vocab_file`: a word per
    line in the table's order. Raises: DataError if it cannot be read or lacks `<S>` or `</S>`."""

    def __init__(self, lm_vocab_file: PathLike):
        self._vocab = Vocabulary(lm_vocab_file)
        self._vocab.require_marks((BOS, EOS))

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the words of a batch, int64 (n, T + 2), 0 after a sentence's end; (0, 2) if empty.
        Raises: DataError if a sentence is not a list of words, or for a missing word and `<UNK>`.
        """
        return padded(sentences, self._vocab.known_ids, [BOS], [EOS])


def padded(
    sentences: Iterable[Iterable[str]],
    encode: Callable[[list[str]], np.ndarray],
    begin: Sequence[str] = (),
    end: Sequence[str] = (),
    shape: tuple[int, ...] = (),
) -> np.ndarray:
    """Return the ids of sentences, between words such as marks, plus 1: int64 (n, T, *shape), where
    T includes these words. Raises: DataError if a sentence is not a list of words."""
    batch = [[*begin, *words, *end] for words in checked_sentences(sentences)]
    n_steps = max(map(len, batch), default=len(begin) + len(end))
    ids: np.ndarray = np.zeros((len(batch), n_steps, *shape), np.int64)
    for row, words in zip(ids, batch, strict=True):
        row[: len(words)] = shifted(encode(words))
    return ids


def shifted(ids: Any) -> Any:
    """Return ids, an array or a tensor, plus 1, because models reserve 0 for padding."""
    return ids + 1


def batcher(options: ModelOptions, lm_vocab_file: PathLike | None = None) -> Batcher | TokenBatcher:
    """Return a batcher that makes the ids of a model; one that reads words requires its vocabulary.
    Raises: DataError if the file is missing or cannot be used."""
    alphabet = alphabet_of(options)
    if alphabet is not None:
        return Batcher(lm_vocab_file, alphabet.width, alphabet)
    if lm_vocab_file is None:
        raise DataError("this model reads words; give the vocabulary file of its word table")
    return TokenBatcher(lm_vocab_file)


def check_ids_shape(shape: tuple[int | None, ...], options: ModelOptions) -> None:
    """Raise DataError if a batch has the shape of another batcher's ids."""
    alphabet = alphabet_of(options)
    axes = ("B", "T") if alphabet is None else ("B", "T", alphabet.width)
    if len(shape) != len(axes) or tuple(shape)[2:] not in ((None,), axes[2:]):
        expected = ", ".join(map(str, axes))
        raise DataError(
            f"ids have shape {tuple(shape)}, but the model reads ({expected}); make them with the "
            "batcher() of the model"
        )


def check_ids(ids: np.ndarray, options: ModelOptions, n_tokens: int | None) -> None:
    """Raise DataError if an id is out of range; `n_tokens` is the number of words of a table."""
    alphabet = alphabet_of(options)
    largest = np.array([n_tokens]) if alphabet is None else alphabet.n_ids  # of each column
    in_range = (ids >= 0) & (ids <= largest)
    if not in_range.all():
        raise DataError(f"ids from {ids.min()} to {ids.max()}, expected 0 to {largest.max()}")
