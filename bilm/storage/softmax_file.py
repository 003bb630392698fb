"""The softmax of an export: `<stem>_softmax.hdf5`, with its words, beside the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bilm.language_model import BiLM
from bilm.storage import names as weights
from bilm.storage.hdf5 import numbers, open_hdf5, strings


def softmax_beside(weight_file: Path) -> Path:
    """Return where the softmax of an export is, if it has one."""
    return weight_file.with_name(f"{weight_file.stem}_softmax.hdf5")


class SoftmaxFile:
    """A stored softmax; its weights are not read before they are requested.

    Args:
        path: the HDF5 file.
    Attributes: `path`; `words` that it predicts, by id.
    Raises: WeightsError if the file is none with words.
    """

    def __init__(self, path: Path):
        self.path = path
        with open_hdf5(path) as file:
            self.words = strings(file, "vocabulary")

    def assign(self, model: BiLM) -> None:
        """Set the variables of a model's softmax. Raises: WeightsError."""
        own = weights.stored_variables(model)  # without the kernel where it is the word table
        wanted = {name for name in own if not weights.is_bilm(name)}
        weights.load_hdf5(model, self.path, only=wanted.__contains__)

    def value(self, name: str) -> np.ndarray:
        """Return the value of a stored name. Raises: WeightsError."""
        with open_hdf5(self.path) as file:
            return numbers(file, name)[:]
