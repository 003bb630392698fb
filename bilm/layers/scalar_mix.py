"""The weighted sum of a biLM's layers that a downstream task learns."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

EPSILON = 1e-12


@keras.saving.register_keras_serializable(package="bilm")
class ScalarMix(keras.layers.Layer):
    """gamma * sum_j softmax(w)_j * layer_j.

    Args:
        do_layer_norm: normalise each layer first, with one mean and one variance over all
            unmasked positions and features in the batch; a sentence's vector then depends on its
            batch.
        l2_coef: weight of the penalty l2_coef * sum w^2 on the mixture weights; None for none.

    Inputs: float `(B, layers, T, D)` and a boolean mask `(B, T)`. Returns: float `(B, T, D)`.
    Weights start at 0, i.e. the mean of the layers; gamma starts at 1.
    Reference: Peters et al. 2018, arXiv:1802.05365, equation 1. The reference adds the constant
    1/layers to every weight before the softmax, which changes nothing.
    """

    def __init__(self, do_layer_norm: bool = False, l2_coef: float | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.do_layer_norm = do_layer_norm
        self.l2_coef = l2_coef

    def build(self, input_shape: Any) -> None:
        """Make one weight a layer, and gamma."""
        regularizer = keras.regularizers.L2(self.l2_coef) if self.l2_coef else None
        self.weights_before_softmax = self.add_weight(
            (input_shape[1],), "zeros", regularizer=regularizer, name="weights_before_softmax"
        )
        self.gamma = self.add_weight((), "ones", name="gamma")
        self.built = True

    def call(self, layers: Any, mask: Any = None) -> Any:
        """Mix: float (B, layers, T, D), boolean (B, T) -> float (B, T, D)."""
        if self.do_layer_norm:
            layers = normalized(layers, mask)
        weights = ops.softmax(self.weights_before_softmax)
        return self.gamma * ops.einsum("j,bjtd->btd", ops.cast(weights, layers.dtype), layers)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Drop the axis of the layers."""
        return (input_shape[0], *input_shape[2:])

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "do_layer_norm": self.do_layer_norm,
            "l2_coef": self.l2_coef,
        }


def normalized(layers: Any, mask: Any) -> Any:
    """Mean 0 and variance 1 over the unmasked entries of each layer in the batch."""
    given = keras.backend.standardize_dtype(layers.dtype)
    dtype = "float32" if given in ("float16", "bfloat16") else given  # sums over a whole batch
    layers = ops.cast(layers, dtype)
    if mask is None:
        mask = ops.ones_like(layers[:, 0, :, 0])
    mask = ops.cast(mask, dtype)[:, None, :, None]  # B, 1, T, 1
    count = ops.maximum(ops.sum(mask), 1) * layers.shape[-1]  # 1: nothing but padding
    mean = ops.sum(layers * mask, axis=(0, 2, 3), keepdims=True) / count
    variance = ops.sum(ops.square((layers - mean) * mask), axis=(0, 2, 3), keepdims=True) / count
    return ops.cast((layers - mean) * ops.rsqrt(variance + EPSILON), given)
