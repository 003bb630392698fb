"""The weights of a biLM for inference, checked, as values and as initializers of its variables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_tensors import LazyTensor, Tensors
from bilm.support.files import version_of
from bilm.tensors import TensorSpec, tensors_of

if TYPE_CHECKING:
    from bilm.language_model import BiLM

_known: dict[str, StoredWeights] = {}  # by key; their values are not in memory


class StoredWeights:
    """The weights of a biLM for inference. A variable's initializer reads values from the file
    whenever Keras requests them, which may be later and more than once, so it must not change.

    Args:
        n_words: number of words of the table of token vectors or the softmax; None without both.
        sources: the tensors that are read, of the biLM and, if `has_softmax`, of its softmax;
            without any, values are NaN until a program assigns others.
    """

    def __init__(
        self,
        options: ModelOptions,
        n_words: int | None,
        sources: Sequence[Tensors],
        has_softmax: bool = False,
    ):
        self.options, self.n_words, self.has_softmax = options, n_words, has_softmax
        self._specs = tensors_of(options, n_words, has_softmax)
        self._sources = sources
        self._source = " and ".join(dict.fromkeys(tensors.source for tensors in sources))
        self._versions = self._file_versions()

    def remember(self) -> str:
        """Return a key under which this process finds these weights: see `known_weights`. It is a
        hash of the options and the versions of the files."""
        content = self.options, self.n_words, self._versions
        key = hashlib.sha256(repr(content).encode()).hexdigest()
        _known[key] = self
        return key

    def _file_versions(self) -> list[tuple]:
        paths = [path for tensors in self._sources for path in tensors.paths]
        return [(str(path), version_of(path)) for path in paths]

    @property
    def unchanged(self) -> bool:
        """Whether the files exist and are unchanged."""
        try:
            return self._file_versions() == self._versions
        except FileNotFoundError:
            return False

    def build(
        self, padding: bool = False, precision: str = "float32", frozen: bool = False
    ) -> BiLM:
        """Build a biLM; its weights are constants if `frozen`."""
        from bilm.language_model import BiLM

        model = BiLM(
            self.options, self.n_words, padding, self.has_softmax, precision=precision, name="bilm"
        )
        self.start(model, frozen)
        model.build()
        return model

    def values(self, padding: bool = False) -> Iterator[tuple[str, np.ndarray]]:
        """Yield name and value of each tensor, float32, with a padding row if the model has
        padding. Raises: WeightsError if one is missing, damaged, of another shape or not finite, or
        if a file has changed."""
        for spec, read in self._readers(padding).items():
            yield spec.name, read()

    def start(self, model: BiLM, frozen: bool = False) -> None:
        """Set the initializers of a model that is not built yet. Raises: WeightsError as `values`
        does, also when a variable is created."""
        import keras

        initial = dict.fromkeys(self._specs, keras.initializers.Constant(float("nan")))
        if self._sources:
            for spec, read in self._readers(model.padding).items():
                initial[spec] = partial(_initial_value, read)
        for spec, initializer in initial.items():
            layer = model.layer_of(spec)
            layer.frozen = frozen
            layer.initial[spec.attribute] = initializer

    def require_values(self, model: BiLM, name: str) -> None:
        """Raise WeightsError if there are no sources, and the weights of the built model of the
        layer `name` are not assigned yet; in a graph, TensorFlow's own error. Not checked on
        JAX."""
        if self._sources:
            return
        import keras

        smallest = min(model.weights, key=lambda weight: len(weight.shape)).value
        is_set = keras.ops.all(keras.ops.isfinite(smallest))
        error = WeightsError(f"{name}: load the weights of the biLM before the first call")
        if keras.backend.backend() == "tensorflow":
            from bilm.layers.functional import require

            require(is_set, error)
        elif keras.backend.backend() == "torch" and not is_set:
            raise error

    def _readers(self, padding: bool) -> dict[TensorSpec, Callable[[], np.ndarray]]:
        """Return the function that reads each tensor of the model as `values` yields it; unused
        tensors cause one warning. Raises: WeightsError if one is missing."""
        unused = {name: tensors for tensors in self._sources for name in tensors}
        readers: dict[TensorSpec, Callable[[], np.ndarray]] = {}
        for spec in self._specs:
            name = spec.name
            if name not in unused:
                name = name.replace("MultiRNNCell/Cell0/", "")  # files of one layer may omit this
            if name not in unused:
                raise WeightsError(
                    f"{self._source}: {spec.name} is missing; the options require it"
                )
            tensors = unused.pop(name)
            where = f"{tensors.source}: {name}"
            readers[spec] = partial(self._read, tensors[name], spec, padding, where)
        if unused:
            logging.warning(
                "%s: the model does not use %d datasets: %s",
                self._source, len(unused), ", ".join(sorted(unused)[:8]),
            )  # fmt: skip
        return readers

    def _read(self, tensor: LazyTensor, spec: TensorSpec, padding: bool, where: str) -> np.ndarray:
        """Return a stored value as a variable holds it: see `values`."""
        if tensor.shape != spec.shape:
            raise WeightsError(
                f"{where} has shape {tensor.shape}, but the options require {spec.shape}"
            )
        # NumPy converts values, because HDF5 converts float16 ten times more slowly. A float64
        # value that exceeds the range of float32 becomes infinite.
        with np.errstate(over="ignore"):
            value = np.asarray(tensor).astype(np.float32, copy=False)
        if not self.unchanged:  # tensors of another file would be mixed with those read before
            raise WeightsError(
                f"{self._source}: has changed since the model was opened, or is missing; open the "
                "model, or create the layer, again"
            )
        if not np.isfinite(value).all():
            raise WeightsError(f"{where} contains values that are not finite")
        if padding and spec.row.has_padding:
            return np.concatenate([np.zeros_like(value[:1]), value])
        return value


def _initial_value(read: Callable[[], np.ndarray], shape: Any, dtype: Any = None) -> Any:
    """Return the value of a variable, as an initializer of Keras does."""
    import keras

    # In a graph, the operation that reads the value. Keras also requests values in scratch graphs,
    # which never run.
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            value = tf.numpy_function(read, [], tf.float32)
            return tf.cast(tf.ensure_shape(value, shape), dtype)
    return keras.ops.convert_to_tensor(read(), dtype=dtype)


def known_weights(key: str | None) -> StoredWeights | None:
    """Return the weights that this process has remembered under a key; None without them, or if
    their files have changed."""
    stored = _known.get(key or "")
    return stored if stored is not None and stored.unchanged else None
