"""Matrix products of layers on TensorFlow, in the type of their weight."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def rows_times(x: Any, weight: Any) -> Any:
    """Multiply in the weight's type: (B, M), (M, N) -> (B, N) of the type of x."""
    return tf.cast(tf.matmul(tf.cast(x, weight.dtype), weight), x.dtype)


def times_columns(weight: Any, x: Any) -> Any:
    """Multiply in the weight's type: (M, N), (N, B) -> (M, B) of the type of x."""
    return tf.cast(tf.matmul(weight, tf.cast(x, weight.dtype)), x.dtype)


def transposed_copy(weight: Any) -> Any:
    """Return the transpose as a matrix of its own: (M, N) -> (N, M).

    Without a node between, TensorFlow folds a transpose back into each product that reads it, and
    with a few rows those take up to four times as long.
    """
    return tf.ensure_shape(tf.transpose(weight), weight.shape[::-1])
