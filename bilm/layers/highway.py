"""The highway stack between the character CNN and its projection."""

from typing import Any

from keras import initializers, ops

from bilm.layers.functional import product
from bilm.layers.types import Shape, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import TensorSpec, part


class Highway(WeightedLayer):
    """Highway layers over token vectors; `precision`: see `BiLM`.

    y = g * relu(W x + b) + (1 - g) * x,  g = sigmoid(W_g x + b_g)

    Inputs: float `(..., D)`. Returns: float `(..., D)`.
    Reference: Srivastava et al. 2015, arXiv:1505.00387.
    """

    def __init__(self, n_layers: int, precision: str = "float32", **kwargs: Any):
        super().__init__(**kwargs)
        self.n_layers = n_layers
        self.precision = precision

    def build(self, input_shape: Shape) -> None:
        """Create a gate and a transform per layer; the gates start nearly closed (bias -2)."""
        self.layers = []  # W_g, b_g, W, b of each
        for i in range(self.n_layers):
            gate, gate_bias, transform, bias = part("highway", {"F": input_shape[-1]}, i=i)
            tensors = (
                self._matrix(gate),
                self.add_tensor(gate_bias, initializers.Constant(-2.0)),
                self._matrix(transform),
                self.add_tensor(bias, "zeros"),
            )
            self.layers.append(tensors)
        self.built = True

    def _matrix(self, spec: TensorSpec) -> Tensor:
        # A Keras initializer returns the same numbers each time, so each matrix has its own.
        normal = initializers.RandomNormal(0.0, spec.shape[0] ** -0.5)
        return self.add_operand(spec, normal)

    def call(self, x: Tensor) -> Tensor:
        """Apply the layers in order: float (..., D) -> (..., D)."""
        for gate, gate_bias, transform, bias in self.layers:
            g = ops.sigmoid(product(x, gate, self.precision) + gate_bias)
            x = x + g * (ops.relu(product(x, transform, self.precision) + bias) - x)
        return x
