"""The ids that a model for embedding reads: the batcher that makes them, and a check of a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bilm.data.vocabulary import Batcher, TokenBatcher, alphabet_of
from bilm.errors import DataError
from bilm.options.model_options import ModelOptions


def batcher(
    options: ModelOptions, lm_vocab_file: str | Path | None = None
) -> Batcher | TokenBatcher:
    """Return a batcher that makes the ids of a model with these options.

    Args:
        lm_vocab_file: the vocabulary, required for a model that reads words.
    Raises: DataError if the file is missing or cannot be used.
    """
    if (alphabet := alphabet_of(options)) is not None:
        return Batcher(lm_vocab_file, alphabet.width, alphabet)
    if lm_vocab_file is None:
        raise DataError("this model reads words; give the vocabulary file of its word table")
    return TokenBatcher(lm_vocab_file)


def check_ids_shape(shape: tuple[int | None, ...], options: ModelOptions) -> None:
    """Check the shape of a batch of ids. Raises: DataError for ids of another batcher."""
    alphabet = alphabet_of(options)
    expected = "(B, T)" if alphabet is None else f"(B, T, {alphabet.width})"
    n_axes = 2 if alphabet is None else 3
    if len(shape) != n_axes or (alphabet and shape[2] not in (None, alphabet.width)):
        raise DataError(
            f"ids have shape {tuple(shape)}, but the model reads {expected}; make them with the "
            "batcher() of the model"
        )


def check_ids(ids: np.ndarray, options: ModelOptions, n_tokens: int | None) -> None:
    """Check the values of a batch of ids, where `n_tokens` is the number of words of a word table.

    Raises: DataError if one is out of range.
    """
    alphabet = alphabet_of(options)
    n_ids = np.array([n_tokens]) if alphabet is None else alphabet.n_ids
    if ids.size and not ((ids >= 0) & (ids <= n_ids)).all():
        raise DataError(f"ids from {ids.min()} to {ids.max()}, expected 0 to {n_ids.max()}")
