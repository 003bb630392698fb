"""The base class of the layers with the weights of the biLM."""

from __future__ import annotations

from typing import Any

import keras
from keras import initializers, ops

from bilm.errors import WeightsError
from bilm.tensors import TensorSpec


class WeightedLayer(keras.layers.Layer):
    """A layer whose variables can be initialized with given values, or replaced by constants.

    Keras may create variables in a scratch graph, which drops assignments, in a `tf.function`, or
    once per replica. The value of an initializer reaches the variable in all of these cases.

    Attributes:
        initial: initializers that replace those of the layer, by the name of the variable. Set it
            before the layer is built.
        frozen: whether weights are constants, so that there are no variables to train or assign.
            A frozen layer may store its weights in another layout only.
        precision: precision of the layer's products, see `BiLM`.
    """

    precision = "float32"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.initial = {}
        self.frozen = False

    def freeze(self) -> None:
        """Make weights constants, for inference only; call it before the layer is built."""
        self.frozen = True

    def add_tensor(self, spec: TensorSpec, initializer: Any, is_operand: bool = False) -> Any:
        """Create the variable of a tensor: see `add_weight`."""
        return self.add_weight(spec.shape, initializer, spec.attribute, is_operand)

    def add_weight(self, shape: Any, initializer: Any, name: str, is_operand: bool = False) -> Any:
        """Create a variable, or a constant if frozen, from `initial` if it contains the name.

        `is_operand` states that only products read the weight. If they round it to bfloat16, a
        constant is stored rounded.
        """
        if name in self.initial:
            initializer = self.initial[name]
        if self.frozen:
            value = initializers.get(initializer)(shape, dtype=self.variable_dtype)
            is_rounded = is_operand and self.precision == "bfloat16"
            return ops.cast(value, "bfloat16") if is_rounded else value
        return super().add_weight(shape=shape, initializer=initializer, name=name)

    def own_weight(self, name: str) -> Any:
        """Return the variable with this name, of this layer itself and not of a sublayer.

        Raises: WeightsError if the layer is frozen.
        """
        if self.frozen:
            raise WeightsError(
                f"{self.path}: {name} cannot be read or set: the model is frozen for inference; "
                "load it again without freezing it"
            )
        return next(variable for variable in self.weights if variable.name == name)
