"""Selecting layers, and collecting the vectors of a sentence: each word's, or one for all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from bilm.embedding.choices import POOLS
from bilm.errors import OptionsError

Layers = str | Sequence[int]


class Collector(Protocol):
    """Collects a sentence's vectors from windows of steps, float32 (..., words, features)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        """Start with no vectors; `shape` is a sentence's without words, (..., 0, D)."""

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """Add the vectors of some words, with the features of one direction."""

    def result(self) -> np.ndarray:
        """Return the collected vectors, float32 (..., T, D) or (..., D)."""


class EachWord:
    """The vectors of each word: float32 (..., T, D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        self._vectors: np.ndarray = np.empty((*shape[:-2], n_words, shape[-1]), np.float32)

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        self._vectors[..., words, features] = vectors

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return self._vectors


class Mean:
    """The mean over words, or zeros without words: float32 (..., D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        self._sums, self._n_words = np.zeros((*shape[:-2], shape[-1])), n_words

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        self._sums[..., features] += vectors.sum(axis=-2, dtype=np.float64)

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return (self._sums / max(self._n_words, 1)).astype(np.float32)


class Max:
    """The largest value of each feature, or zeros without words: float32 (..., D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        start = -np.inf if n_words else 0
        self._largest: np.ndarray = np.full((*shape[:-2], shape[-1]), start, np.float32)

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        largest = self._largest[..., features]
        np.maximum(largest, vectors.max(axis=-2), out=largest)

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return self._largest


COLLECTORS: dict[str, type[Any]] = dict(zip(POOLS, (EachWord, Mean, Max), strict=True))


def check_pool(pool: str, normalize: bool) -> None:
    """Raise OptionsError for an unknown `pool`, or for `normalize` without pooling."""
    if pool not in COLLECTORS:
        raise OptionsError(f"pool is {pool!r}, expected one of {', '.join(POOLS)}")
    if normalize and pool == "none":
        raise OptionsError("normalize requires one vector per sentence: set pool to mean or max")


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Return a sentence's vectors divided by their Euclidean norm; zeros are unchanged."""
    return (vectors / (np.linalg.norm(vectors) or 1.0)).astype(np.float32)


def layer_selector(layers: Layers, n_layers: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that selects `layers` from an array (n_layers, ..., T, D).

    Raises: OptionsError if `layers` does not name existing layers.
    """
    named = {
        "all": lambda array: array,
        "top": lambda array: array[-1],
        "average": lambda array: array.mean(axis=0),
        "sum": lambda array: array.sum(axis=0),
    }
    if isinstance(layers, str) and layers in named:
        return named[layers]
    chosen = layer_numbers(layers)
    if not chosen or not all(0 <= i < n_layers for i in chosen):
        raise OptionsError(
            f"layers is {layers!r}, expected {', '.join(named)} or a list of numbers "
            f"from 0 to {n_layers - 1}"
        )
    return lambda array: array[chosen]


def layer_numbers(layers: Layers) -> list[int]:
    """Return the numbers in `layers`; an empty list for names such as "all"."""
    try:
        if isinstance(layers, str):
            return [int(part) for part in layers.split(",")]
        return [operator.index(part) for part in layers]
    except (TypeError, ValueError):
        return []
