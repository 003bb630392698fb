"""The loop over time, for inference and for training."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

MAX_UNROLL = 32
# Up to this many rows of W, one product [x, h] W per step is faster than x W_x for all steps
# together, whose result is four times as wide as a cell and passes through memory twice.
MAX_JOINT = 512

Tensors: TypeAlias = tuple[tf.Tensor, ...]
# The values of all steps: a list of T tensors if the loop is unrolled, else one tensor (T, ...).
Series: TypeAlias = list[tf.Tensor] | tf.Tensor


def loop(
    body: Callable[..., tuple[Tensors, Tensors]],
    carry: Tensors,
    n_steps: int | tf.Tensor,
    reverse: bool,
    shapes: Sequence[tf.TensorShape],
) -> tuple[Tensors, list[Series]]:
    """Run `carry, values = body(t, carry)` over time; return the last carry, and the series of each
    value, of this shape. A short static length is unrolled, so that the steps of the two
    directions overlap."""
    if isinstance(n_steps, int) and unrolled(n_steps):
        series: list[Series] = [[None] * n_steps for _ in shapes]
        steps = range(n_steps)
        for t in reversed(steps) if reverse else steps:
            carry, values = body(t, carry)
            for by_time, value in zip(series, values, strict=True):
                by_time[t] = value
        return carry, series

    def advance(k, old, arrays):
        t = n_steps - 1 - k if reverse else k
        new, values = body(t, old)
        written = []
        for array, value in zip(arrays, values, strict=True):
            written.append(array.write(t, value))

        # The shapes of the carry must not change from step to step.
        old_shapes = [part.shape for part in old]
        new = tuple(map(tf.ensure_shape, new, old_shapes))
        return k + 1, new, written

    arrays = [tf.TensorArray(carry[0].dtype, n_steps, element_shape=shape) for shape in shapes]
    start = tf.constant(0), tuple(carry), arrays
    _, carry, arrays = tf.while_loop(lambda k, *_: k < n_steps, advance, start)
    return carry, [array.stack() for array in arrays]


def unrolled(n_steps: object) -> bool:
    """Return whether `loop` unrolls this number of steps in the graph."""
    return isinstance(n_steps, int) and n_steps <= MAX_UNROLL and not tf.executing_eagerly()


def by_step(series: tf.Tensor, n_steps: int | tf.Tensor) -> Series:
    """Return a series (T, ...) to index by step: a list if the loop is unrolled."""
    return tf.unstack(series, n_steps) if unrolled(n_steps) else series


def size_of(x: tf.Tensor, axis: int) -> int | tf.Tensor:
    """Return the size of an axis: an integer if it is known and not 0, otherwise a tensor."""
    return x.shape[axis] or tf.shape(x)[axis]


def transposed_copy(weight: tf.Tensor) -> tf.Tensor:
    """Return the transpose as a separate matrix: (M, N) -> (N, M). If TensorFlow folds it into each
    product that reads it, a product of a few rows takes up to four times as long."""
    return tf.ensure_shape(tf.transpose(weight), weight.shape[::-1])
