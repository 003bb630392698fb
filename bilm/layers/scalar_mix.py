"""The learned weighted sum of the layers of a biLM."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bilm.layers.types import Shape, Tensor

EPSILON = 1e-12


@keras.saving.register_keras_serializable(package="bilm")
class ScalarMix(keras.layers.Layer):
    """gamma * sum_j softmax(w)_j * layer_j.

    Args:
        do_layer_norm: normalize each layer first, with one mean and one variance over all
            unmasked positions and features, so that vectors depend on the batch.
        l2_coef: weight of the penalty l2_coef * sum w^2 on w; None for no penalty.
        start: initial values of w, one per layer, and of gamma; None for zeros, the mean, and 1.

    Inputs: float `(B, layers, T, D)` and a boolean mask `(B, T)`. Returns: float `(B, T, D)`.
    Reference: Peters et al. 2018, arXiv:1802.05365, equation 1. bilm-tf's 1/layers has no effect.
    """

    def __init__(
        self,
        do_layer_norm: bool = False,
        l2_coef: float | None = None,
        start: tuple[Sequence[float], float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.do_layer_norm = do_layer_norm
        self.l2_coef = l2_coef
        self.start = start

    def build(self, input_shape: Shape) -> None:
        """Create a weight per layer, and gamma. Raises: ValueError if `start` has other layers."""
        n_layers = input_shape[1]
        weights, gamma = self.start or ([0.0] * n_layers, 1.0)
        if len(weights) != n_layers:
            raise ValueError(f"start has weights for {len(weights)} layers, expected {n_layers}")
        constant = keras.initializers.Constant
        self.weights_before_softmax = self.add_weight(
            (n_layers,),
            constant([float(weight) for weight in weights]),
            regularizer=Penalty(self.l2_coef) if self.l2_coef else None,
            name="weights_before_softmax",
        )
        self.gamma = self.add_weight((), constant(float(gamma)), name="gamma")
        self.built = True

    def call(self, layers: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix: float (B, layers, T, D), boolean (B, T) -> float (B, T, D)."""
        if self.do_layer_norm:
            layers = normalized(layers, mask)
        weights = ops.softmax(self.weights_before_softmax)
        return self.gamma * ops.einsum("j,bjtd->btd", ops.cast(weights, layers.dtype), layers)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *input_shape[2:])

    def get_config(self) -> dict[str, Any]:
        names = "do_layer_norm", "l2_coef", "start"
        return super().get_config() | {name: getattr(self, name) for name in names}


class Penalty(keras.regularizers.L2):
    """l2_coef * sum w^2 cast to `floatx`, the dtype of the losses to which Keras adds it."""

    def __call__(self, x: Tensor) -> Tensor:
        return ops.cast(super().__call__(x), keras.config.floatx())


def normalized(layers: Tensor, mask: Tensor | None) -> Tensor:
    """Scale each layer to mean 0 and variance 1 over the unmasked entries of the batch: float
    (B, layers, T, D), boolean (B, T) or None -> float (B, layers, T, D)."""
    of_input = keras.backend.standardize_dtype(layers.dtype)
    # float16 is not precise enough to sum over a whole batch.
    dtype = "float32" if of_input in ("float16", "bfloat16") else of_input
    layers = ops.cast(layers, dtype)
    if mask is None:
        mask = ops.ones_like(layers[:, 0, :, 0])
    mask = ops.cast(mask, dtype)[:, None, :, None]  # B, 1, T, 1

    # At least one position, to avoid dividing by 0 if there is only padding.
    count = ops.maximum(ops.sum(mask), 1) * layers.shape[-1]
    mean = ops.sum(layers * mask, axis=(0, 2, 3), keepdims=True) / count  # 1, layers, 1, 1
    squares = ops.square((layers - mean) * mask)
    variance = ops.sum(squares, axis=(0, 2, 3), keepdims=True) / count
    return ops.cast((layers - mean) * ops.rsqrt(variance + EPSILON), of_input)
