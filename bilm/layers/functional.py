"""Operations of several layers: products in a precision, and what TensorFlow does its own way."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

PRECISIONS = ("float32", "bfloat16")


def checked_precision(precision: str) -> str:
    """Return the precision back. Raises: ValueError for one that is not among `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}, expected one of {PRECISIONS}")
    return precision


def product(x: Any, y: Any, precision: str = "float32") -> Any:
    """Matrix product: float (..., K), (K, N) -> (..., N) of the type of x.

    With `bfloat16` the operands are rounded to it, the sums are kept in float32 inside the
    product, and the result passes through bfloat16 once.
    """
    if precision == "float32":
        return ops.matmul(x, y)
    return ops.cast(ops.matmul(ops.cast(x, precision), ops.cast(y, precision)), x.dtype)


def gather_rows(table: Any, ids: Any) -> Any:
    """Rows of a variable: table (V, ...), integer ids (...) -> (..., ...).

    With TensorFlow the gradient is `tf.IndexedSlices` of the rows used, and a table of 793,471
    rows is neither copied nor densified; `keras.ops.take` reads the variable as a whole first.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        value = table.value if isinstance(table, keras.Variable) else table
        return tf.gather(_on_this_replica(value), ids)
    return ops.take(table, ids, axis=0)


def _on_this_replica(value):
    """Return the replica's own part of a distributed variable, and anything else as it is.

    `tf.gather` reads a distributed variable as a whole, and one whose rows were updated is copied
    when it is read.
    """
    import tensorflow as tf

    replicas, context = getattr(value, "values", None), tf.distribute.get_replica_context()
    if not isinstance(replicas, tuple) or context is None:
        return value
    number = int(tf.get_static_value(context.replica_id_in_sync_group))
    return replicas[number % len(replicas)]  # the number counts all hosts' replicas, host by host


def dropout(x: Any, rate: float, seed: Any) -> Any:
    """Drop entries of x with probability `rate`, scaling the others; seed None drops nothing.

    Args:
        x: float tensor.
        rate: probability of zero, in [0, 1).
        seed: integer tensor (2,). The same seed gives the same mask, on any replica and in any
            session (a Keras Dropout under MirroredStrategy may give every replica one mask).
            Other backends only look at whether it is None, and draw from Keras' own generator.
    """
    if seed is None or rate == 0:
        return x
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.nn.experimental.stateless_dropout(x, rate, seed)
    return keras.random.dropout(x, rate)


def fold_seed(seed: Any, data: int) -> Any:
    """Derive another seed (2,) from a seed and a number; None stays None."""
    if seed is None or keras.backend.backend() != "tensorflow":
        return seed
    import tensorflow as tf

    return tf.random.experimental.stateless_fold_in(seed, data)


def with_marks(mask: Any) -> Any:
    """Add the marks to the mask of tokens: boolean (B, T) -> (B, T + 2)."""
    mask = ops.pad(ops.cast(mask, "int32"), ((0, 0), (1, 0)), constant_values=1)
    mask = ops.pad(mask, ((0, 0), (0, 1)))  # the begin mark, the tokens, nothing yet
    n_from_here = ops.flip(ops.cumsum(ops.flip(mask, 1), axis=1), 1)
    n_from_before = ops.pad(n_from_here[:, :-1], ((0, 0), (1, 0)))
    # The end mark is where one is left before and none from there on.
    is_end = ops.logical_and(n_from_here == 0, n_from_before == 1)
    return ops.logical_or(mask > 0, is_end)


def compiled(function: Any, signature: Any = None) -> Any:
    """Compile a function of tensors where the backend gains by it.

    Args:
        function: takes and gives tensors, in lists and dicts.
        signature: its arguments as `keras.KerasTensor`s, for one compilation whatever the shapes;
            None compiles for the shapes that come, and soon for any.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    if signature is not None:
        signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), signature)
    # Without AutoGraph, which rewrites every function below and is not needed, tracing is quicker.
    return tf.function(function, signature, autograph=False, reduce_retracing=True)
