"""Slots of optimizers in bfloat16: float32 copies for an update, and stochastic rounding.

A moving average with the factor 0.999 changes by at most about 0.1 % in most steps. bfloat16 has 8
binary digits, so that rounding to the nearest number would undo such a change, and the average
would stop. Stochastic rounding rounds to the upper neighbour with a probability equal to the
distance from the lower one, so that the sum of many changes is right in expectation.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

N_DROPPED = 16  # bits of float32 that bfloat16 lacks
KEPT = 0xFFFFFFFF >> N_DROPPED << N_DROPPED


def stochastic_bfloat16(values: Any, seed: Any) -> tf.Tensor:
    """Round values stochastically to one of their two neighbours in bfloat16.

    All rows of a matrix use the same random numbers, because drawing one for each value would take
    longer than an update. Each value is right in expectation.

    Args:
        values: finite float32 (n,) or (..., n).
        seed: integers (2,); the same seed gives the same result.
    Returns: bfloat16 of the same shape.
    """
    shape = [values.shape[-1] or tf.shape(values)[-1]]
    drawn = tf.random.stateless_uniform(shape, seed, 0, 1 << N_DROPPED, tf.int32)
    # The bits of a float are ordered by magnitude. They are unsigned here, because TensorFlow adds
    # int32 on the host.
    bits = tf.bitcast(values, tf.uint32) + tf.bitcast(drawn, tf.uint32)
    kept = tf.bitwise.bitwise_and(bits, tf.constant(KEPT, tf.uint32))
    return tf.cast(tf.bitcast(kept, tf.float32), tf.bfloat16)


class FloatCopy:
    """A float32 copy of values, as a variable that exists during one step.

    TensorFlow's update operations require variables of one dtype.

    Args:
        values: float tensor.
        name: name that no other copy has at the same time.
    """

    def __init__(self, values: Any, name: str):
        values = tf.cast(values, tf.float32)
        self.handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=values.shape, shared_name=name)
        self.shape = values.shape
        self.assign(values)

    def assign(self, values: Any) -> Any:
        """Replace the values."""
        return tf.raw_ops.AssignVariableOp(resource=self.handle, value=values)

    def value(self) -> tf.Tensor:
        """Return the values."""
        values = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
        return tf.ensure_shape(values, self.shape)

    def taken(self) -> tf.Tensor:
        """Return the values and delete the variable."""
        values = self.value()
        with tf.control_dependencies([values]):
            tf.raw_ops.DestroyResourceOp(resource=self.handle)
        return values
