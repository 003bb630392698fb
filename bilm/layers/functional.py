"""Functions that several layers use: products, gathers, dropout, masks, checks, compilation."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bilm.layers.types import Tensor


def product(x: Tensor, y: Tensor, precision: str = "float32") -> Tensor:
    """Matrix product: float (..., K), (K, N) -> (..., N), with the dtype of x. With "bfloat16" the
    inputs are rounded, sums inside the product are in float32, and the result is rounded once."""
    if precision == "float32":
        return ops.matmul(x, y)
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
    if callable(value):
        value = table

    # `tf.gather` would read a whole distributed variable, which copies it after a row update; it
    # reads this replica's copy instead.
    replicas = getattr(value, "values", None)
    context = tf.distribute.get_replica_context()
    if isinstance(replicas, tuple) and context is not None:
        number = int(tf.get_static_value(context.replica_id_in_sync_group))
        value = replicas[number % len(replicas)]  # the number counts all hosts
    return tf.gather(value, ids)


def dropout(x: Tensor, rate: float, seed: Tensor, shape: Sequence) -> Tensor:
    """Set random entries of x to 0 and scale the others by 1 / (1 - rate), on TensorFlow. The seed
    (2,) alone determines them. `shape` is that of x, or 1 for axes that share one decision."""
    import tensorflow as tf

    is_kept = tf.random.stateless_uniform(shape, seed) >= rate
    return ops.where(is_kept, x * (1 / (1 - rate)), 0.0)


def fold_seed(seed: Tensor, data: int | Tensor) -> Tensor:
    """Derive a seed (2,) from a seed and a number, on TensorFlow."""
    import tensorflow as tf

    # On the host, which reads seeds: otherwise a GPU would compute them and the host would wait.
    with tf.device("CPU:0"):
        return tf.random.experimental.stateless_fold_in(seed, data)


def token_mask(ids: Tensor) -> Tensor:
    """Return the positions with a token: ids integer (B, T) or (B, T, C) -> boolean (B, T)."""
    return ids > 0 if len(ids.shape) == 2 else ops.any(ids > 0, axis=-1)


def require(holds: Tensor, error: Exception) -> None:
    """Raise the error unless a tensor is true, on TensorFlow; a graph raises
    `tf.errors.InvalidArgumentError` when it runs."""
    import tensorflow as tf

    if not tf.executing_eagerly():
        tf.debugging.Assert(holds, [str(error)])
    elif not holds:
        raise error


def without_marks(mask: Tensor) -> Tensor:
    """Return the positions with a word: boolean (B, T + 2) -> (B, T).

    The marks are the first and the last place of a row in the mask; padding may be anywhere. The
    first and the last column are dropped, so place t of the result is place t + 1 of the mask.
    """
    numbers = ops.cast(mask, "int32")
    count = ops.cumsum(numbers, axis=1)  # B, T + 2: of the tokens up to here
    total = ops.sum(numbers, axis=1, keepdims=True)  # B, 1
    is_inside = ops.logical_and(count > 1, count < total)
    return ops.logical_and(mask, is_inside)[:, 1:-1]


def with_marks(mask: Tensor) -> Tensor:
    """Return the positions with a word or a mark: words boolean (B, T) -> (B, T + 2). The begin
    mark is the first place, the end mark follows the last word."""
    words = ops.pad(ops.cast(mask, "int32"), ((0, 0), (1, 1)))  # B, T + 2
    places = ops.cumsum(ops.ones_like(words), axis=1)  # from 1
    last = ops.max(places * words, axis=1, keepdims=True, initial=1)  # B, 1; 1 without words
    is_mark = ops.logical_or(places == 1, places == last + 1)
    return ops.logical_or(words > 0, is_mark)


def compiled(
    function: Callable, signature: Sequence | None = None, gradients: bool = True
) -> Callable[..., Any]:
    """Compile a function of tensors on TensorFlow and, with a signature, on JAX.

    Args:
        function: function of tensors in lists and dicts. On JAX, its weights must be constants.
        signature: its arguments as `keras.KerasTensor`s, so that TensorFlow compiles it once for
            all shapes and JAX once for each, without gradients; None compiles again for new shapes,
            up to a general one.
        gradients: whether the caller may compute gradients of the results.
    """
    backend = keras.backend.backend()
    if backend == "jax" and signature is not None:
        import jax

        def exact(*tensors):
            # Otherwise products on a GPU round float32 inputs to TF32.
            chosen = jax.config.jax_default_matmul_precision
            with jax.default_matmul_precision(chosen or "highest"):
                return function(*tensors)

        return jax.jit(exact)
    if backend == "torch" and (signature is not None or not gradients):
        import torch

        return torch.no_grad()(function)
    if backend != "tensorflow":
        return function
    import tensorflow as tf

    if signature is not None:
        signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), signature)
    # Tracing is faster without AutoGraph, which would rewrite every function that is called.
    return tf.function(function, signature, autograph=False, reduce_retracing=True)
