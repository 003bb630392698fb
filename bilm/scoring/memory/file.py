"""The file of `bilm memory`, HDF5: `text`, weights by view, `shares` and `exponents`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilm.errors import DataError
from bilm.scoring.memory.features import OFFSETS
from bilm.scoring.memory.prediction import Memory
from bilm.storage.hdf5 import attribute, numbers, open_hdf5, save_hdf5


class StoredMemory(NamedTuple):
    """A memory, and the exponents with which a `Filler` uses it, float64 (directions + 4,)."""

    memory: Memory
    exponents: np.ndarray

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        arrays = {
            **self.memory.weights,
            "shares": self.memory.shares,
            "exponents": self.exponents,
            "text": self.memory.text.ids.astype(np.int32),
        }
        save_hdf5(path, arrays, {"vocabulary": _digest(self.memory.vocabulary.words)})

    @classmethod
    def load(cls, path: str | Path, words: Sequence[str]) -> StoredMemory:
        """Read the file; `words` is the vocabulary of the model, in the order of ids.

        Raises: WeightsError if the file is missing, damaged or another one; DataError for the
            memory of a model with another vocabulary.
        """
        with open_hdf5(path) as file:
            weights = {view: numbers(file, view)[...] for view in OFFSETS}
            ids = numbers(file, "text")[...]
            shares = numbers(file, "shares")[...]
            exponents = numbers(file, "exponents")[...]
            digest = attribute(file, "vocabulary")
        if digest != _digest(words):
            raise DataError(f"{path}: memory of another model, with another vocabulary")
        return cls(Memory(words, ids, weights, shares), exponents)


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode(errors="surrogatepass")).hexdigest()
