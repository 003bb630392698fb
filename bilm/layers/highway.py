"""The highway stack between the character CNN and its projection."""

from __future__ import annotations

from typing import Any

import keras
from keras import initializers, ops

from bilm.layers.functional import checked_precision, product
from bilm.layers.weighted import WeightedLayer


@keras.saving.register_keras_serializable(package="bilm")
class Highway(WeightedLayer):
    """Highway stack over token vectors.

    y = g * relu(W x + b) + (1 - g) * x,  g = sigmoid(W_g x + b_g)

    Args:
        n_layers: number of highway layers.
        precision: of the operands of products, `float32` or `bfloat16`.

    Inputs: float `(..., D)`. Returns: float `(..., D)`.
    Raises: ValueError if the last axis is unknown when it is built.
    Stored as `CNN_high_{i}/W_carry`, `b_carry`, which are W_g, b_g, and `CNN_high_{i}/W_transform`,
    `b_transform`, which are W, b.
    Reference: Srivastava et al. 2015, arXiv:1505.00387.
    """

    def __init__(self, n_layers: int, precision: str = "float32", **kwargs: Any):
        super().__init__(**kwargs)
        self.n_layers = n_layers
        self.precision = checked_precision(precision)

    def build(self, input_shape: Any) -> None:
        """Make a gate and a transform a layer; the gates start nearly shut (bias -2)."""
        dim = input_shape[-1]
        if dim is None:
            raise ValueError("Highway needs to know the last axis of its input, got None")
        self.gates, self.gate_biases, self.transforms, self.biases = [], [], [], []
        for i in range(self.n_layers):
            self.gates.append(self._square(dim, f"gate_{i}"))
            self.gate_biases.append(
                self.add_weight((dim,), initializers.Constant(-2.0), name=f"gate_bias_{i}")
            )
            self.transforms.append(self._square(dim, f"transform_{i}"))
            self.biases.append(self.add_weight((dim,), "zeros", name=f"bias_{i}"))
        self.built = True

    def _square(self, dim: int, name: str) -> Any:
        # An initializer of Keras gives the same numbers each time: every matrix has its own.
        return self.add_weight((dim, dim), initializers.RandomNormal(0.0, dim**-0.5), name=name)

    def call(self, x: Any) -> Any:
        """Apply every layer in turn."""
        layers = zip(self.gates, self.gate_biases, self.transforms, self.biases, strict=True)
        for gate, gate_bias, transform, bias in layers:
            g = ops.sigmoid(product(x, gate, self.precision) + gate_bias)
            x = x + g * (ops.relu(product(x, transform, self.precision) + bias) - x)
        return x

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Keep the shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "n_layers": self.n_layers, "precision": self.precision}
