"""What is kept of a sentence: which layers, and each word's vectors or one of all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from bilm.errors import OptionsError

Layers = str | Sequence[int]


class Collector(Protocol):
    """Takes what each window of steps finds of one sentence, float32 (..., words, features)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        """Start; `shape` is that of the result for a sentence without words, (..., 0, D)."""

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """Take some words' vectors, of the features of one direction."""

    def result(self) -> np.ndarray:
        """Return what was collected, float32 (..., T, D) or (..., D)."""


class EachWord:
    """The vectors of each word: float32 (..., T, D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        self._vectors = np.empty((*shape[:-2], n_words, shape[-1]), np.float32)

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        self._vectors[..., words, features] = vectors

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return self._vectors


class Mean:
    """The mean over words, zeros where there is none: float32 (..., D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        self._sums, self._n_words = np.zeros((*shape[:-2], shape[-1])), n_words

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        self._sums[..., features] += vectors.sum(axis=-2, dtype=np.float64)

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return (self._sums / max(self._n_words, 1)).astype(np.float32)


class Max:
    """The largest value of each feature, zeros where there is no word: float32 (..., D)."""

    def __init__(self, shape: tuple[int, ...], n_words: int):
        start = -np.inf if n_words else 0
        self._largest = np.full((*shape[:-2], shape[-1]), start, np.float32)

    def add(self, vectors: np.ndarray, words: slice, features: slice) -> None:
        """See `Collector`."""
        largest = self._largest[..., features]
        np.maximum(largest, vectors.max(axis=-2), out=largest)

    def result(self) -> np.ndarray:
        """See `Collector`."""
        return self._largest


COLLECTORS: dict[str, type[Any]] = {"none": EachWord, "mean": Mean, "max": Max}
POOLS = tuple(COLLECTORS)


def check_pool(pool: str, normalize: bool) -> None:
    """Raise OptionsError for another way to pool, or if single words should be unit_length."""
    if pool not in COLLECTORS:
        raise OptionsError(f"pool is {pool!r}, expected one of {', '.join(POOLS)}")
    if normalize and pool == "none":
        raise OptionsError("normalize is for one vector per sentence: set pool to mean or max")


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Return what a sentence gets, divided by its Euclidean norm; zeros stay zeros."""
    return (vectors / (np.linalg.norm(vectors) or 1.0)).astype(np.float32)


def layer_selector(layers: Layers, n_layers: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that picks what `layers` says of an array (n_layers, ..., T, D).

    Raises: OptionsError if it says nothing that is there.
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
    """Return the numbers that `layers` lists; none if it is anything else."""
    try:
        if isinstance(layers, str):
            return [int(part) for part in layers.split(",")]
        return [operator.index(part) for part in layers]
    except (TypeError, ValueError):
        return []
