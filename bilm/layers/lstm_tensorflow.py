"""`LSTM` over time on TensorFlow: rows side by side, as they come, where no gradient is asked for.

With one, `lstm_gradient_tensorflow` keeps what it needs and puts features before rows. What both
share, the loop and the cell's arithmetic, is here.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bilm.layers.lstm import LSTMCell, LSTMState

MAX_UNROLL = 32
# Up to so many inputs one product of both at every step is faster than one of x over all steps,
# whose results, four times as wide as a cell, go through memory twice.
MAX_JOINT = 512


def run_over_time(cell: LSTMCell, x, state, steps_mask, reverse, training, fresh=None):
    """Run a cell over time: see `LSTM` for shapes; `training` keeps what the gradient needs."""
    weights = [tf.convert_to_tensor(w) for w in (cell.kernel, cell.bias)]
    if cell.projection is not None:
        weights.append(tf.convert_to_tensor(cell.projection))
    # Integers, since oneDNN does not slice booleans everywhere, and says so.
    steps_mask, fresh = (None if m is None else tf.where(m, 1, 0) for m in (steps_mask, fresh))
    spec = Spec(
        cell.cell_clip,
        cell.proj_clip if cell.projection is not None else None,
        tf.as_dtype(cell.precision) if cell.precision != "float32" else x.dtype,
        steps_mask,
        reverse,
        fresh,
    )
    if training:
        from bilm.layers.lstm_gradient_tensorflow import run_with_gradient

        return run_with_gradient(x, state, weights, spec)
    return _forward(x, state, weights, spec)


class Spec(NamedTuple):
    """What a run over time is like: `operands` is the type that products read."""

    cell_clip: float | None
    proj_clip: float | None
    operands: tf.DType
    steps_mask: tf.Tensor | None
    reverse: bool
    fresh: tf.Tensor | None


def loop(body, carry, n_steps, reverse, shapes, dtype):
    """Run `carry, values = body(t, carry)` over time; give the last carry and each value's series.

    A short static length is unrolled, so that independent steps of the two directions overlap; a
    series is then a list of the steps' tensors, and otherwise one tensor (T, *shape).
    """
    static = tf.get_static_value(n_steps)
    if static is not None and static <= MAX_UNROLL and not tf.executing_eagerly():
        steps = range(static - 1, -1, -1) if reverse else range(static)
        series = [[None] * static for _ in shapes]
        for t in steps:
            carry, values = body(t, carry)
            for one, value in zip(series, values, strict=True):
                one[t] = value
        return carry, series

    arrays = [tf.TensorArray(dtype, n_steps, element_shape=shape) for shape in shapes]

    def advance(k, carry, arrays):
        t = n_steps - 1 - k if reverse else k
        carry, values = body(t, carry)
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
        return k + 1, carry, arrays

    _, carry, arrays = tf.while_loop(
        lambda k, *_: k < n_steps, advance, (tf.constant(0), tuple(carry), arrays)
    )
    return carry, [array.stack() for array in arrays]


def step(gates, old_cell, cell_clip, axis):
    """Give the cell, i, j, f, o, tanh of the cell and the output before its projection.

    Args:
        gates: float, all four along `axis`, the forget gate's 1 added.
    """
    i, j, f, o = tf.split(gates, 4, axis=axis)
    i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
    cell = f * old_cell + i * j
    if cell_clip:
        cell = tf.clip_by_value(cell, -cell_clip, cell_clip)
    tanh_cell = tf.tanh(cell)
    return cell, i, j, f, o, tanh_cell, o * tanh_cell


def with_forget_bias(bias):
    """Add the forget gate's 1 to a bias (4 D,)."""
    return bias + tf.repeat(tf.constant([0.0, 0.0, 1.0, 0.0], bias.dtype), bias.shape[0] // 4)


def projected(hidden, projection, proj_clip, times):
    """Project and clip an output, where there is a projection."""
    if projection:
        hidden = times(hidden, projection[0])
        if proj_clip:
            hidden = tf.clip_by_value(hidden, -proj_clip, proj_clip)
    return hidden


def _forward(x, state, weights, spec):
    """Give outputs (T, B, P) and the last state."""
    kernel, bias, *projection = weights
    kernel, *projection = (tf.cast(weight, spec.operands) for weight in (kernel, *projection))
    gates_at = _gates(x, kernel, with_forget_bias(bias), spec)
    n_steps = x.shape[0] or tf.shape(x)[0]

    def body(t, carry):
        old_cell, old_hidden = carry
        if spec.fresh is not None:
            first = spec.fresh[t][:, None] > 0
            old_cell, old_hidden = (tf.where(first, 0.0, old) for old in carry)
        cell, *_, hidden = step(gates_at(t, old_hidden), old_cell, spec.cell_clip, axis=1)
        hidden = projected(hidden, projection, spec.proj_clip, _times)
        if spec.steps_mask is not None:
            keep = spec.steps_mask[t][:, None] > 0
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        carry = (tf.ensure_shape(cell, old_cell.shape), tf.ensure_shape(hidden, old_hidden.shape))
        return carry, (hidden,)

    shapes = (state.hidden.shape,)
    last, (outputs,) = loop(body, tuple(state), n_steps, spec.reverse, shapes, x.dtype)
    return tf.stack(outputs) if isinstance(outputs, list) else outputs, LSTMState(*last)


def _gates(x, kernel, bias, spec):
    """Give the function of a step and a hidden state that makes the gates, float (B, 4 D)."""
    x_operands = tf.cast(x, spec.operands)
    if kernel.shape[0] <= MAX_JOINT:

        def joint(t, hidden):
            read = tf.concat([x_operands[t], tf.cast(hidden, spec.operands)], axis=1)
            return tf.cast(tf.matmul(read, kernel), x.dtype) + bias

        return joint

    of_input, recurrent = kernel[: x.shape[2]], kernel[x.shape[2] :]
    # One product for all steps, kept in the operands' type, which is what it came out in.
    input_gates = tf.matmul(tf.reshape(x_operands, (-1, x.shape[2])), of_input)
    rounded = spec.operands != x.dtype  # the bias is not: it is added to what the loop casts back
    if not rounded:
        input_gates += bias  # oneDNN makes one operation of the two
    shape = [x.shape[k] or tf.shape(x)[k] for k in range(2)]
    input_gates = tf.reshape(input_gates, (*shape, kernel.shape[1]))

    def lifted(t, hidden):
        gates = tf.cast(input_gates[t], x.dtype) + _times(hidden, recurrent)
        return gates + bias if rounded else gates

    return lifted


def _times(x, weight):
    """Multiply in the weight's type; the result has that of x."""
    return tf.cast(tf.matmul(tf.cast(x, weight.dtype), weight), x.dtype)
