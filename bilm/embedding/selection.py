"""The layers of a model's arrays to select, and how to pool a sentence's words."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from bilm.embedding.choices import POOLS
from bilm.errors import OptionsError

Layers = str | Sequence[int]  # see `ElmoEmbedder`
REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "top": lambda array: array[-1],
    "average": lambda array: array.mean(axis=0),
    "sum": lambda array: array.sum(axis=0),
}


class Selection:
    """The layers to select from a model's arrays, and how to pool a sentence's words.

    Args:
        layers, pool, normalize: see `ElmoEmbedder.embed_sentences`.
        n_layers, dim: numbers of layers and features of the arrays, (n_layers, ..., T, dim).
    Attributes: `pool`, `normalize`; `numbers`, of the selected layers, empty for a name such as
        "top"; `shape`, of the vectors of a word or a pooled sentence: (D,), or (layers, D).
    Raises: OptionsError for layers that do not exist, an unknown pool, or `normalize` without
        pooling.
    """

    def __init__(self, layers: Layers, pool: str, normalize: bool, n_layers: int, dim: int):
        if pool not in POOLS:
            raise OptionsError(f"pool is {pool!r}, expected one of {', '.join(POOLS)}")
        if normalize and pool == "none":
            raise OptionsError(
                "normalize requires one vector per sentence: set pool to mean or max"
            )
        self.pool, self.normalize = pool, normalize
        self.numbers: list[int] = []
        self.shape: tuple[int, ...] = (dim,)
        self._reduce = REDUCTIONS.get(layers) if isinstance(layers, str) else None
        if self._reduce is not None:
            return
        self._is_all = isinstance(layers, str) and layers == "all"
        self.numbers = list(range(n_layers)) if self._is_all else _layer_numbers(layers)
        if not self.numbers or not all(0 <= i < n_layers for i in self.numbers):
            raise OptionsError(
                f"layers is {layers!r}, expected all, {', '.join(REDUCTIONS)} or a list of "
                f"numbers from 0 to {n_layers - 1}"
            )
        self.shape = (len(self.numbers), dim)

    def select(self, array: np.ndarray) -> np.ndarray:
        """Select the layers from an array (n_layers, ..., T, D)."""
        if self._reduce is not None:
            return self._reduce(array)
        return array if self._is_all else array[self.numbers]


def side_by_side(vectors: np.ndarray) -> np.ndarray:
    """Concatenate the layers of words: (layers, T, D) -> (T, layers * D), or (T, D) unchanged."""
    return vectors if vectors.ndim == 2 else np.concatenate(vectors, axis=1)


def _layer_numbers(layers: Layers) -> list[int]:
    """Return the numbers in `layers`; an empty list if it contains anything else."""
    try:
        if isinstance(layers, str):
            return [int(number) for number in layers.split(",")]
        return [operator.index(number) for number in layers]
    except (TypeError, ValueError):
        return []
