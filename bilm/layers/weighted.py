"""The base class of the layers with the weights of the biLM."""

from __future__ import annotations

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

    def add_tensor(self, spec: TensorSpec, initializer: Any, is_operand: bool = False) -> Tensor:
        """Create the variable of a tensor, or a constant if frozen; `initial` takes precedence.

        `is_operand` states that only products read the weight. If they round it to bfloat16, a
        constant is stored rounded.
        """
        initializer = self.initial.get(spec.attribute, initializer)
        if not self.frozen:
            return self.add_weight(spec.shape, initializer, name=spec.attribute)
        value = initializers.get(initializer)(spec.shape, dtype=self.variable_dtype)
        is_rounded = is_operand and self.precision == "bfloat16"
        return ops.cast(value, "bfloat16") if is_rounded else value

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
