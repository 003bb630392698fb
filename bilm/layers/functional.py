"""Functions that several layers use: products, gathers, dropout, masks, compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bilm.layers.types import Tensor


def product(x: Tensor, y: Tensor, precision: str = "float32") -> Tensor:
    """Matrix product: float (..., K), (K, N) -> (..., N), with the dtype of x.

    With "bfloat16" the inputs are rounded, sums inside the product are in float32, and the result
    is rounded once. Raises: ValueError for "int8", which Keras does not compute.
    """
    if precision == "float32":
        return ops.matmul(x, y)
    if precision == "int8":
        raise ValueError("int8 runs in bilm.inference.onnx_int8 only")
    rounded = ops.matmul(ops.cast(x, precision), ops.cast(y, precision))
    return ops.cast(rounded, x.dtype)


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a variable: table (V, ...), integer ids (...) -> (..., ...).

    On TensorFlow the gradient is a `tf.IndexedSlices` of the rows used, and a table of 793,471 rows
    is neither copied nor densified. `keras.ops.take` would read the whole variable first.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, ids, axis=0)
    import tensorflow as tf

    # In Keras 3.4 a layer's weights are not instances of keras.Variable. `value` is a property of a
    # Keras variable and a method of a tf.Variable.
    value = getattr(table, "value", table)
    return tf.gather(_on_this_replica(table if callable(value) else value), ids)


def _on_this_replica(value):
    """Return this replica's copy of a distributed variable, and other values unchanged.

    `tf.gather` would read the whole distributed variable, which copies it after a row update.
    """
    import tensorflow as tf

    replicas = getattr(value, "values", None)
    context = tf.distribute.get_replica_context()
    if not isinstance(replicas, tuple) or context is None:
        return value
    number = int(tf.get_static_value(context.replica_id_in_sync_group))
    return replicas[number % len(replicas)]  # the number counts all hosts


def dropout_mask(shape: Sequence, rate: float, seed: Tensor | None) -> Tensor | None:
    """Draw the entries that `dropout` keeps: boolean, or None without a rate or a seed.

    Args:
        shape: of the tensor; entries along an axis of size 1 share one decision.
        rate: probability of dropping an entry, in [0, 1).
        seed: integer tensor (2,) or None. On TensorFlow the same seed always gives the same mask,
            and replicas with other seeds have other masks, unlike with a Keras Dropout. Other
            backends draw from Keras' generator unless the seed is None.
    """
    if seed is None or rate == 0:
        return None
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.random.stateless_uniform(shape, seed) >= rate
    return keras.random.uniform(shape) >= rate


def dropout(x: Tensor, rate: float, mask: Tensor | None) -> Tensor:
    """Set the entries of x outside a mask of `dropout_mask`, which is broadcast to the shape of x,
    to 0 and scale the others by 1 / (1 - rate); return x without a mask."""
    return x if mask is None else ops.where(mask, x * (1 / (1 - rate)), 0.0)


def fold_seed(seed: Tensor | None, data: int | Tensor) -> Tensor | None:
    """Derive a seed (2,) from a seed and a number; return None for None."""
    if seed is None or keras.backend.backend() != "tensorflow":
        return seed
    import tensorflow as tf

    # On the host, which reads seeds: otherwise a GPU would compute them and the host would wait.
    with tf.device("CPU:0"):
        return tf.random.experimental.stateless_fold_in(seed, data)


def token_mask(ids: Tensor) -> Tensor:
    """Return a mask of the positions with a token: ids integer (B, T) or (B, T, C) -> boolean
    (B, T)."""
    return ids > 0 if len(ids.shape) == 2 else ops.any(ids > 0, axis=-1)


def without_marks(mask: Tensor) -> Tensor:
    """Return a mask of the positions with a word: boolean (B, T + 2) -> (B, T).

    The marks are the first and the last place of a row in the mask; padding may be anywhere. The
    first and the last column are dropped, so place t of the result is place t + 1 of the mask.
    """
    numbers = ops.cast(mask, "int32")
    count = ops.cumsum(numbers, axis=1)  # B, T + 2: of the tokens up to here
    total = ops.sum(numbers, axis=1, keepdims=True)  # B, 1
    is_inside = ops.logical_and(count > 1, count < total)
    return ops.logical_and(mask, is_inside)[:, 1:-1]


def with_marks(mask: Tensor) -> Tensor:
    """Return a mask of the positions with a word or a mark: words boolean (B, T) -> (B, T + 2).

    The begin mark is the first place, the end mark follows the last word.
    """
    has_begin = ops.pad(ops.cast(mask, "int32"), ((0, 0), (1, 0)), constant_values=1)
    has_begin = ops.pad(has_begin, ((0, 0), (0, 1)))  # B, T + 2
    n_from_here = ops.flip(ops.cumsum(ops.flip(has_begin, 1), axis=1), 1)
    n_from_before = ops.pad(n_from_here[:, :-1], ((0, 0), (1, 0)))
    is_end = ops.logical_and(n_from_here == 0, n_from_before == 1)
    return ops.logical_or(has_begin > 0, is_end)


def compiled(
    function: Callable, signature: Sequence | None = None, gradients: bool = True
) -> Callable[..., Any]:
    """Compile a function of tensors on TensorFlow and, with a signature, on JAX; other backends run
    it as it is.

    Args:
        function: function from tensors to tensors, in lists and dicts. On JAX, its weights must be
            constants.
        signature: its arguments as `keras.KerasTensor`s, so that TensorFlow compiles it once for
            all shapes and JAX once for each, without gradients; None compiles again for new shapes,
            up to a general one.
        gradients: whether the caller may compute gradients of the results.
    """
    if keras.backend.backend() == "jax" and signature is not None:
        import jax

        return jax.jit(function)
    if keras.backend.backend() == "torch" and (signature is not None or not gradients):
        import torch

        return torch.no_grad()(function)
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    if signature is not None:
        signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), signature)
    # Tracing is faster without AutoGraph, which would rewrite every function that is called.
    return tf.function(function, signature, autograph=False, reduce_retracing=True)
