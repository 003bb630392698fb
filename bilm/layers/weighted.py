"""The base of the layers that hold the biLM's weights."""

from __future__ import annotations

from typing import Any

import keras


class WeightedLayer(keras.layers.Layer):
    """A layer whose variables can start from given values.

    Keras makes variables where and when it must: in a scratch graph, where an assignment is
    dropped, in a `tf.function`, once for each replica. The value that an initializer returns
    arrives in all of these places.

    Attributes:
        initial: by a variable's name, a function from its shape to the initializer that replaces
            its own. Set it before the layer is built.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.initial = {}

    def add_weight(self, shape: Any, initializer: Any, name: str) -> Any:
        """Make a variable, from `initial` where that has its name."""
        if name in self.initial:
            initializer = self.initial[name](shape)
        return super().add_weight(shape=shape, initializer=initializer, name=name)

    def own_weight(self, name: str) -> Any:
        """Return the variable of this layer, not of one inside it, that has the name."""
        return next(variable for variable in self.weights if variable.name == name)
