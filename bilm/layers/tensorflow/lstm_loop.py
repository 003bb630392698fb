"""The loop over time and the arithmetic of a cell, for inference and for training."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

MAX_UNROLL = 32
# Up to this many rows of W, one product [x, h] W per step is faster than x W_x for all steps
# together, whose result is four times as wide as a cell and passes through memory twice.
MAX_JOINT = 512


class Spec(NamedTuple):
    """The settings of a run over time; `operands` is the dtype of matrix-multiplication inputs."""

    cell_clip: float | None
    proj_clip: float | None
    operands: tf.DType
    steps_mask: tf.Tensor | None
    reverse: bool
    fresh: tf.Tensor | None


def loop(body: Any, carry: Any, n_steps: Any, reverse: Any, shapes: Any, dtype: Any) -> Any:
    """Run `carry, values = body(t, carry)` over time.

    A short static length is unrolled, so that the steps of the two directions overlap.

    Returns: the last carry, and for each value its series: a list of tensors if unrolled, otherwise
        one tensor (T, *shape).
    """
    if unrolled(n_steps):
        steps = range(n_steps - 1, -1, -1) if reverse else range(n_steps)
        series = [[None] * n_steps for _ in shapes]
        for t in steps:
            carry, values = body(t, carry)
            for one, value in zip(series, values, strict=True):
                one[t] = value
        return carry, series

    arrays = [tf.TensorArray(dtype, n_steps, element_shape=shape) for shape in shapes]

    def advance(k, old, arrays):
        t = n_steps - 1 - k if reverse else k
        new, values = body(t, old)
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
        new = tuple(tf.ensure_shape(n, o.shape) for n, o in zip(new, old, strict=True))
        return k + 1, new, arrays

    _, carry, arrays = tf.while_loop(
        lambda k, *_: k < n_steps, advance, (tf.constant(0), tuple(carry), arrays)
    )
    return carry, [array.stack() for array in arrays]


def unrolled(n_steps: object) -> bool:
    """Return whether `loop` unrolls this number of steps in the graph."""
    return isinstance(n_steps, int) and n_steps <= MAX_UNROLL and not tf.executing_eagerly()


def by_step(series: Any, n_steps: Any) -> Any:
    """Return a series (T, ...) to index by step: a list if the loop is unrolled."""
    return tf.unstack(series, n_steps) if unrolled(n_steps) else series


def next_cell(i: Any, j: Any, f: Any, old_cell: Any, cell_clip: Any) -> Any:
    """Return the next cell from input gate, candidate and forget gate, after activation."""
    return clipped(f * old_cell + i * j, cell_clip)


def clipped(values: Any, bound: float | None) -> Any:
    """Clip values to [-bound, bound]; return them unchanged without a bound."""
    return tf.clip_by_value(values, -bound, bound) if bound else values


def with_forget_bias(bias: Any) -> Any:
    """Add the forget gate's 1 to a bias (4 D,)."""
    gates = tf.reshape(bias, (4, -1)) + tf.constant([[0.0], [0.0], [1.0], [0.0]], bias.dtype)
    return tf.reshape(gates, bias.shape)


def transposed_copy(weight: Any) -> Any:
    """Return the transpose as a separate matrix: (M, N) -> (N, M).

    TensorFlow would otherwise fold the transpose into each product that reads it, and a product of
    a few rows then takes up to four times as long.
    """
    return tf.ensure_shape(tf.transpose(weight), weight.shape[::-1])
