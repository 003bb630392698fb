"""Reads the tensors of files in TensorFlow's checkpoint format."""

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import WeightsError
from bilm.storage.stored_tensors import LazyTensor
from bilm.support.files import unusable

UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError, ValueError)  # what TensorFlow raises


class TensorReader(dict[str, LazyTensor]):
    """The tensors of a checkpoint or SavedModel of TensorFlow, by key; `path`: without the endings
    of its files. Raises: WeightsError if the index is damaged, or a value when it is read."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path
        try:
            self._reader = tf.train.load_checkpoint(path)
        except UNREADABLE as error:
            check_name(os.path.dirname(path))
            raise self._damaged(error) from error
        dtypes = self._reader.get_variable_to_dtype_map()
        for key, shape in self._reader.get_variable_to_shape_map().items():
            dtype = np.dtype(dtypes[key].as_numpy_dtype)
            self[key] = LazyTensor(tuple(shape), dtype, partial(self._read, key))

    def _read(self, key: str) -> Any:
        try:
            return self._reader.get_tensor(key)
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> WeightsError:
        files = (f"{self.path}.{ending}" for ending in ("index", "data-00000-of-00001"))
        problem = f"not a whole checkpoint ({reason(error)})"
        return WeightsError(unusable(self.path, problem, *files))


def check_name(folder: str | Path) -> None:
    """Raise WeightsError for a folder whose checkpoints TensorFlow cannot read, because it treats
    the path as a pattern. `?` and `*` also match themselves."""
    path = os.fspath(folder)
    if re.search("[][\\\\\ud800-\udfff]", path):
        raise WeightsError(
            f"{path!a}: contains [, ], a backslash or bytes that are not UTF-8, and TensorFlow "
            "cannot read a checkpoint in a folder of such a name; use another name"
        )


def reason(error: Exception) -> str:
    """Return the first line of a TensorFlow error, without the names of its operations."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", line)
