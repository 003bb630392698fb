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
from bilm.storage.stored_model import StoredModel


class StoredMemory(NamedTuple):
    """A memory, and the exponents with which a `Filler` uses it, float64 (directions + 4,)."""

    memory: Memory
    exponents: np.ndarray

    def save(self, path: str | Path, model: StoredModel) -> None:
        """Write the file, whole or not at all; `model` is the one that the memory was fitted to."""
        arrays = {
            **self.memory.weights,
            "shares": self.memory.shares,
            "exponents": self.exponents,
            "text": self.memory.text.ids.astype(np.int32),
            "sentences": np.array(sorted(self.memory.digests), np.uint64),
        }
        save_hdf5(path, arrays, {"model": _digest(model, self.memory.vocabulary.words)})

    @classmethod
    def load(cls, path: str | Path, model: StoredModel, words: Sequence[str]) -> StoredMemory:
        """Read the file; `words` is the vocabulary of the model, in the order of ids.

        Raises: WeightsError if the file is missing, damaged or another one; DataError for the
            memory of a model with other weights or another vocabulary.
        """
        with open_hdf5(path) as file:
            weights = {view: numbers(file, view)[...] for view in OFFSETS}
            ids = numbers(file, "text")[...]
            shares = numbers(file, "shares")[...]
            exponents = numbers(file, "exponents")[...]
            if attribute(file, "model") != _digest(model, words):
                raise DataError(
                    f"{path}: memory of another model, whose weights or vocabulary differ from "
                    f"those of {model}; write a memory of this model with bilm memory"
                )
            digests = set(numbers(file, "sentences")[...].tolist())
        return cls(Memory(words, ids, weights, shares, digests), exponents)


def _digest(model: StoredModel, words: Sequence[str]) -> str:
    content = "\n".join([model.weights_digest, *words])
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
