"""Initializers that read the variables of a biLM from its files, in whichever graph Keras
creates them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage import names
from bilm.storage.formats.base import Tensors
from bilm.support.files import version_of
from bilm.tensors import TensorSpec

if TYPE_CHECKING:
    from bilm.language_model import BiLM

_known: dict[str, StoredWeights] = {}


class StoredWeights:
    """The weights of a biLM for inference and, if it reads token ids, the table of token vectors.
    Values are not kept in memory: a variable's initializer reads them from the file whenever Keras
    requests them, which may be later and more than once. The files must not change before that.

    Args:
        weights: tensors of the biLM.
        n_words, table: for a biLM that reads token ids, the tensors that contain `embedding`, and
            its number of rows.
    Attributes:
        key: hash that identifies the options and the current version of the files; see
            `known_weights`. It does not reveal their paths.
    """

    def __init__(
        self,
        options: ModelOptions,
        n_words: int | None,
        weights: Tensors,
        table: Tensors | None = None,
    ):
        self.options, self.n_words = options, n_words
        if table is None:
            self._sources = [UnchangingTensors(weights, names.is_bilm)]
        else:
            self._sources = [
                UnchangingTensors(table, lambda name: name == "embedding"),
                UnchangingTensors(weights, lambda name: name.startswith("RNN_")),
            ]
        files = [(source.tensors.source, source.found) for source in self._sources]
        self.key = hashlib.sha256(repr([options, files]).encode()).hexdigest()
        _known[self.key] = self

    def start(self, model: BiLM) -> None:
        """Set the initializers of a model that is not built yet; unused datasets cause one warning.

        Raises: WeightsError if a dataset is missing; when a variable is created, if a dataset has
            the wrong shape or values that are not finite.
        """
        for source in self._sources:
            source.start(model)

    @property
    def unchanged(self) -> bool:
        """Whether the files exist and are unchanged."""
        return all(source.unchanged for source in self._sources)


def known_weights(key: str | None) -> StoredWeights | None:
    """Return the weights that this process opened under a key, if their files are unchanged."""
    stored = _known.get(key or "")
    return stored if stored is not None and stored.unchanged else None


class UnchangingTensors:
    """Tensors whose files must not change until the variables of `only` have been read."""

    def __init__(self, tensors: Tensors, only: Callable[[str], bool]):
        self.tensors, self.only = tensors, only
        self.found = self._look()

    def _look(self) -> list[tuple]:
        try:
            return [(str(path), *version_of(path)) for path in self.tensors.paths]
        except FileNotFoundError as error:
            raise WeightsError(
                f"{error.filename}: removed while the model was read; open the model again"
            ) from error

    @property
    def unchanged(self) -> bool:
        """Whether the files exist and are unchanged."""
        return all(p.is_file() for p in self.tensors.paths) and self._look() == self.found

    def start(self, model: BiLM) -> None:
        """Set the initializers of a model: see `StoredWeights.start`."""
        specs = names.specs_of(model)
        for name, stored in names.found_names(specs, self.tensors, self.only).items():
            spec = specs[name]
            initializer = self._initializer(stored, spec, model.padding)
            names.layer_of(model, spec).initial[spec.attribute] = initializer

    def _initializer(self, stored: str, spec: TensorSpec, padding: bool) -> Callable:
        """Return the initializer of a variable; `stored` is the tensor's name in the file."""

        def read() -> np.ndarray:
            exist = all(path.is_file() for path in self.tensors.paths)
            if exist and self._look() != self.found:
                raise WeightsError(
                    f"{self.tensors.source}: the file has changed since the layer was created; "
                    "create the layer again"
                )
            with self.tensors.opened() as tensor:
                where = f"{self.tensors.source}: {stored}"
                return names.checked(tensor(stored), spec, padding, where)

        def initial_value(shape: Any, dtype: Any = None) -> Any:
            import keras

            # In a graph, the operation that reads the value. Keras also requests values in scratch
            # graphs, which never run.
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                if not tf.executing_eagerly():
                    value = tf.numpy_function(read, [], tf.float32)
                    return tf.cast(tf.ensure_shape(value, shape), dtype)
            return keras.ops.convert_to_tensor(read(), dtype=dtype)

        return initial_value


@dataclass(frozen=True)
class UnsetWeights:
    """The weights of a biLM that a program assigns later; until then, they are NaN.

    It has the interface of `StoredWeights`, which are read from files.
    """

    options: ModelOptions
    n_words: int | None
    key: ClassVar[None] = None

    def start(self, model: BiLM) -> None:
        """Set the initializers of a model that is not built yet."""
        import keras

        for spec in names.specs_of(model).values():
            initial = names.layer_of(model, spec).initial
            initial[spec.attribute] = keras.initializers.Constant(float("nan"))

    def require_values(self, model: BiLM, name: str) -> None:
        """Raise WeightsError if the weights of the built model of the layer `name` are not assigned
        yet; on TensorFlow in a graph, `tf.errors.InvalidArgumentError` when it runs. Not checked on
        JAX."""
        import keras

        smallest = min(model.weights, key=lambda weight: len(weight.shape)).value
        is_set = keras.ops.all(keras.ops.isfinite(smallest))
        error = WeightsError(f"{name}: load the weights of the biLM before the first call")
        if keras.backend.backend() == "tensorflow":
            from bilm.layers.functional import require

            require(is_set, error)
        elif keras.backend.backend() == "torch" and not is_set:
            raise error
