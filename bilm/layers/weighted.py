"""The base of the layers that hold the biLM's weights."""

from __future__ import annotations

from typing import Any

import keras
from keras import initializers

from bilm.errors import WeightsError


class WeightedLayer(keras.layers.Layer):
    """A layer whose variables can start from given values, or be constants of these values.

    Keras makes variables where and when it must: in a scratch graph, where an assignment is
    dropped, in a `tf.function`, once for each replica. The value that an initializer returns
    arrives in all of these places.

    Attributes:
        initial: by a variable's name, a function from its shape to the initializer that replaces
            its own. Set it before the layer is built.
        frozen: whether weights are constants, and there are no variables to train or assign. The
            layer may then keep them in another layout, and need not keep them twice.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.initial = {}
        self.frozen = False

    def freeze(self) -> None:
        """Make weights constants, for inference alone. Raises: ValueError if they exist already."""
        if self.built:
            raise ValueError(f"{self.name}: the weights exist already; freeze a layer, then build")
        self.frozen = True

    def add_weight(self, shape: Any, initializer: Any, name: str) -> Any:
        """Make a variable or, if frozen, a constant, from `initial` where that has its name."""
        if name in self.initial:
            initializer = self.initial[name](shape)
        if self.frozen:
            return initializers.get(initializer)(shape, dtype=self.variable_dtype)
        return super().add_weight(shape=shape, initializer=initializer, name=name)

    def own_weight(self, name: str) -> Any:
        """Return the variable of this layer, not of one inside it, that has the name.

        Raises: WeightsError if the layer is frozen.
        """
        self.refuse_frozen(name)
        return next(variable for variable in self.weights if variable.name == name)

    def load_own_variables(self, store: Any) -> None:
        """Load variables as Keras does. Raises: WeightsError if the layer is frozen."""
        self.refuse_frozen("its weights")
        super().load_own_variables(store)

    def refuse_frozen(self, what: str) -> None:
        """Raise WeightsError if the layer is frozen, naming what was requested of it."""
        if self.frozen:
            raise WeightsError(
                f"{self.path}: {what} cannot be read, set or trained: the model is frozen for "
                "inference; load it again without freezing it"
            )
