"""The files of a stored biLM, from which its variables start wherever Keras makes them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from bilm.errors import WeightsError
from bilm.language_model import BiLM
from bilm.storage import names as weights
from bilm.storage.tensors import Tensors

UNSET = (
    "this Elmo was made from options alone and has no weights yet; load them into it, or make it "
    "from options and weight files"
)
_known: dict[str, StoredWeights] = {}


class StoredWeights:
    """The weights of a biLM and, where it reads words, their table.

    No value stays in memory: a variable's initializer reads it when Keras asks, which may be
    later and more than once. The files must stay as they are until then.

    Args:
        weights: of the biLM.
        table: holds `embedding`, for a biLM that reads words.
    Attributes:
        key: names the files as they are now, for `known`; it does not tell their paths.
    """

    def __init__(self, weights: Tensors, table: Tensors | None = None):
        self._weights = _Unchanging(weights)
        self._table = None if table is None else _Unchanging(table)
        files = self._weights.found, self._table and self._table.found
        self.key = hashlib.sha256(repr(files).encode()).hexdigest()
        _known[self.key] = self

    def start(self, model: BiLM) -> None:
        """Have the variables of a model that is not built yet start from the files.

        Datasets without a variable give one warning.

        Raises: WeightsError for a dataset that is missing; when the model is built, for one of
            another shape; when a variable is made, for values that are not finite.
        """
        if not model.options.reads_words:
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


class _Unchanging:
    """Tensors whose files must not change while variables are still to be read from them."""

    def __init__(self, tensors: Tensors):
        self.tensors = tensors
        self.found = self._look()

    def _look(self) -> list[tuple]:
        stats = [(path, os.stat(path)) for path in self.tensors.paths]
        return [(str(path), s.st_ino, s.st_size, s.st_mtime_ns) for path, s in stats]

    @property
    def unchanged(self) -> bool:
        return all(p.is_file() for p in self.tensors.paths) and self._look() == self.found

    def start(self, model: BiLM, only: Callable[[str], bool]) -> None:
        used, names = set(), self.tensors.names
        for stored, (layer, name) in weights.stored_places(model).items():
            if not only(stored):
                continue
            found = weights.stored_name(stored, names, self.tensors.source)
            padded = model.padding and stored in weights.PADDED
            layer.initial[name] = self._initializer(found, padded)
            used.add(found)
        weights.warn_of_extra(names - used, self.tensors.source, only)

    def _initializer(self, name: str, padded: bool):
        """Return the function from a variable's shape to its initializer."""
        where = f"{self.tensors.source}: {name}"

        def initializer_for(shape):
            def read() -> np.ndarray:
                with self._opened() as tensor:
                    return weights.checked(tensor(name), shape, padded, where)

            def initialize(shape, dtype=None):
                return as_initial_value(read, shape, dtype)

            with self._opened() as tensor:
                weights.check_shape(tensor(name), shape, padded, where)
            return initialize

        return initializer_for

    def _opened(self):
        if all(path.is_file() for path in self.tensors.paths) and self._look() != self.found:
            raise WeightsError(
                f"{self.tensors.source}: the file has changed since the layer was made from it; "
                "make the layer anew"
            )
        return self.tensors.opened()


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


def as_initial_value(read: Callable[[], np.ndarray], shape, dtype):
    """Return what an initializer gives: the value, or in a graph the operation that reads it.

    Keras asks for values in its scratch graphs too, which never run.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            value = tf.numpy_function(read, [], tf.float32)
            return tf.cast(tf.ensure_shape(value, shape), dtype)
    return ops.convert_to_tensor(read(), dtype=dtype)
