"""The files of a stored biLM, from which its variables start wherever Keras makes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from bilm.errors import WeightsError
from bilm.language_model import BiLM
from bilm.storage import names as weights
from bilm.storage.hdf5 import dataset_names, numbers, open_hdf5

UNSET = (
    "this Elmo was made from options alone and has no weights yet; load them into it, or make it "
    "from options and weight files"
)
_known: dict[str, StoredWeights] = {}


class StoredWeights:
    """The weight file of a biLM and, where it reads words, the file with their table.

    No value stays in memory: a variable's initializer reads it when Keras asks, which may be
    later and more than once. The files must stay as they are until then.

    Args:
        weight_file: HDF5.
        embedding_file: HDF5 with `embedding`, for a biLM that reads words.
    Attributes:
        key: names the files as they are now, for `known`; it does not tell their paths.
    Raises: WeightsError if a file is missing or no HDF5 file.
    """

    def __init__(self, weight_file: str | Path, embedding_file: str | Path | None = None):
        self._weights = _File(weight_file)
        self._table = None if embedding_file is None else _File(embedding_file)
        files = self._weights.found, self._table and self._table.found
        self.key = hashlib.sha256(repr(files).encode()).hexdigest()
        _known[self.key] = self

    def start(self, model: BiLM) -> None:
        """Have the variables of a model that is not built yet start from the files.

        Datasets without a variable give one warning.

        Raises: WeightsError for a dataset that is missing; when the model is built, for one of
            another shape; when a variable is made, for values that are not finite.
        """
        if model.options.char_cnn is not None:
            self._weights.start(model, weights.is_bilm)
            return
        self._table.start(model, lambda name: name == "embedding")
        self._weights.start(model, lambda name: name.startswith("RNN_"))

    @property
    def unchanged(self) -> bool:
        """Whether the files are there as they were."""
        return all(file is None or file.unchanged for file in (self._weights, self._table))


def known(key: str | None) -> StoredWeights | None:
    """Return the files that this process has opened under a key, if they are unchanged."""
    stored = _known.get(key)
    return stored if stored is not None and stored.unchanged else None


class _File:
    """An HDF5 file that must not change while variables are still to be read from it."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()  # the program may change its folder
        with open_hdf5(path) as file:
            self.names = dataset_names(file)
        self.found = self._look()

    def _look(self) -> tuple:
        stat = os.stat(self.path)
        return str(self.path), stat.st_ino, stat.st_size, stat.st_mtime_ns

    @property
    def unchanged(self) -> bool:
        return self.path.is_file() and self._look() == self.found

    def start(self, model: BiLM, only: Callable[[str], bool]) -> None:
        used = set()
        for stored, (layer, name) in weights.stored_places(model).items():
            if not only(stored):
                continue
            found = weights.stored_name(stored, self.names, str(self.path))
            padded = model.padding and stored in weights.PADDED
            layer.initial[name] = self._initializer(found, padded)
            used.add(found)
        weights.warn_of_extra(self.names - used, self.path, only)

    def _initializer(self, name: str, padded: bool) -> Any:
        """Return the function from a variable's shape to its initializer."""
        where = f"{self.path}: {name}"

        def initializer_for(shape):
            def read() -> np.ndarray:
                with self._open() as file:
                    return weights.checked(numbers(file, name), shape, padded, where)

            def initialize(shape, dtype=None):
                return as_initial_value(read, shape, dtype)

            with self._open() as file:
                weights.check_shape(numbers(file, name), shape, padded, where)
            return initialize

        return initializer_for

    def _open(self):
        if self.path.is_file() and self._look() != self.found:
            raise WeightsError(
                f"{self.path}: the file has changed since the layer was made from it; make the "
                "layer anew"
            )
        return open_hdf5(self.path)


def leave_unset(model: BiLM) -> None:
    """Have the variables of a model that is not built yet start as NaN, to be assigned later."""
    for layer, name in weights.stored_places(model).values():
        layer.initial[name] = lambda shape: keras.initializers.Constant(float("nan"))


def refuse_unset(model: BiLM) -> None:
    """Stop a model that still is as `leave_unset` leaves it; in a graph, once that runs.

    TensorFlow only. On another backend, and where XLA drops assertions, the vectors are NaN.

    Raises: WeightsError, or `tf.errors.InvalidArgumentError` in a graph.
    """
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    bias = model.stacks["forward"].layers[0].cell.bias
    unset = tf.math.is_nan(tf.convert_to_tensor(bias)[0])
    if not tf.executing_eagerly():
        tf.debugging.Assert(tf.logical_not(unset), [UNSET])
    elif unset:
        raise WeightsError(UNSET)


def as_initial_value(read: Callable[[], np.ndarray], shape: Any, dtype: Any) -> Any:
    """Return what an initializer gives: the value, or in a graph the operation that reads it.

    Keras asks for values in its scratch graphs too, which never run.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            value = tf.numpy_function(read, [], tf.float32)
            return tf.cast(tf.ensure_shape(value, shape), dtype)
    return ops.convert_to_tensor(read(), dtype=dtype)
