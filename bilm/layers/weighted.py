"""The base class of the layers with the weights of the biLM."""

from collections.abc import Callable
from typing import Any

import keras
from keras import initializers, ops

from bilm.errors import WeightsError
from bilm.layers.types import Tensor
from bilm.tensors import TensorSpec


class WeightedLayer(keras.layers.Layer):
    """A layer whose variables can be initialized with given values, or replaced by constants.

    Keras may create variables in a scratch graph, which drops assignments, in a `tf.function`, or
    once per replica. The value of an initializer reaches the variable in all of these cases.

    Attributes:
        initial: initializers that replace those of `build`, by the name of the variable.
        frozen: whether weights are constants, for inference only; set it before the layer is
            built. The layer may store them in another layout only.
        precision: precision of the layer's products, see `BiLM`.
    """

    def __init__(self, precision: str = "float32", **kwargs: Any):
        super().__init__(**kwargs)
        self.precision = precision
        self.initial: dict[str, Any] = {}
        self.frozen = False

    def add_tensor(self, spec: TensorSpec, initializer: str | Callable) -> Tensor:
        """Create the variable of a tensor, or a constant if frozen; `initial` takes precedence."""
        initializer = self.initial.get(spec.attribute, initializer)
        if not self.frozen:
            return self.add_weight(spec.shape, initializer, name=spec.attribute)
        return initializers.get(initializer)(spec.shape, dtype=self.variable_dtype)

    def add_operand(self, spec: TensorSpec, initializer: str | Callable) -> Tensor:
        """Create a weight that only products read. A constant has their precision."""
        weight = self.add_tensor(spec, initializer)
        if self.frozen and self.precision == "bfloat16":
            return ops.cast(weight, "bfloat16")
        return weight

    def own_weight(self, name: str) -> keras.Variable:
        """Return the variable with this name. Raises: WeightsError if the layer is frozen."""
        if self.frozen:
            raise WeightsError(
                f"{self.path}: {name} cannot be read or set: the model is frozen for inference; "
                "load it again without freezing it"
            )
        return next(variable for variable in self.weights if variable.name == name)
