"""`LSTM` over time on TensorFlow with a gradient written by hand.

TensorFlow's gradient of a loop computes one product per step and weight, and adds it to an array of
the size of the weight. Here the backward loop computes the gradients of the gates only; one product
over all steps then gives the gradient of each weight.

In this module features come before rows: states are (D, B) and (P, B), gates (4 D, B). The four
gates are then contiguous, so splitting and joining them copies nothing; the backward loop reads the
weights as they are stored; and a product of a few rows in bfloat16 takes half as long. Weights are
cast and transposed once, before the loop, which would not pay off for a short sentence without a
gradient.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.state import LSTMState
from bilm.layers.tensorflow.lstm_loop import (
    MAX_JOINT,
    by_step,
    clipped,
    loop,
    next_cell,
    transposed_copy,
    unrolled,
    with_forget_bias,
)

# Least number of columns of W (four times the units) at which a step is a separate function of the
# graph.
MIN_SHARED = 8192


def run_with_gradient(x: Any, start: Any, weights: Any, spec: Any) -> Any:
    """Run over time: x (T, B, input), `LSTMState`, [kernel, bias, projection if any], `Spec`."""

    @tf.custom_gradient
    def run(x, cell_state, hidden, *weights):
        start = LSTMState(cell_state, hidden)
        outputs, last, saved = _forward(x, start, weights, spec)

        def gradient(d_outputs, d_cell, d_hidden):
            upstream = d_outputs, d_cell, d_hidden
            return _backward(x, start, weights, spec, saved, upstream)

        return (outputs, *last), gradient

    outputs, *last = run(x, *start, *weights)
    return outputs, LSTMState(*last)


def _forward(x, state, weights, spec):
    """Return outputs (T, B, P), the last state and the values of each step for the gradient."""
    kernel, bias, *projection = weights
    n_steps = x.shape[0] or tf.shape(x)[0]
    inputs_at, gates = _gates(x, tf.cast(kernel, spec.operands), with_forget_bias(bias), spec)
    projection = [transposed_copy(tf.cast(weight, spec.operands)) for weight in projection]

    def step(inputs, old_cell, old_hidden, keep=None):
        i, j, f, o = tf.split(gates(inputs, old_hidden), 4, axis=0)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
        cell = next_cell(i, j, f, old_cell, spec.cell_clip)
        tanh_cell = tf.tanh(cell)
        unprojected = o * tanh_cell
        hidden = unprojected
        if projection:
            hidden = clipped(_times_columns(projection[0], unprojected), spec.proj_clip)
        if keep is not None:
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        return hidden, cell, i, j, f, o, tanh_cell, unprojected

    step = _step_function(step, kernel, n_steps)

    def body(t, carry):
        hidden, cell, *others = step(inputs_at(t), *carry, *_kept(spec, t))
        return (cell, hidden), (hidden, cell, *others)

    start = tuple(tf.transpose(part) for part in state)
    shapes = (start[1].shape, *[start[0].shape] * 7)
    last, saved = loop(body, start, n_steps, spec.reverse, shapes, x.dtype)
    return _rows_first(saved[0]), LSTMState(*(tf.transpose(part) for part in last)), saved


def _gates(x, kernel, bias, spec):
    """Return the function from a step t to its input, and the function from this input and a hidden
    state (P, B) to gates, float (4 D, B)."""
    n_steps, n_rows = (x.shape[k] or tf.shape(x)[k] for k in range(2))
    input_dim = x.shape[2]
    operands = tf.cast(x, spec.operands)
    biases = tf.tile(bias[:, None], (1, n_rows))  # faster than broadcasting
    if kernel.shape[0] <= MAX_JOINT:
        joint_kernel = transposed_copy(kernel)
        columns = by_step(tf.transpose(operands, (0, 2, 1)), n_steps)

        def joint(inputs, hidden):
            read = tf.concat([inputs, tf.cast(hidden, spec.operands)], axis=0)
            return tf.cast(tf.matmul(joint_kernel, read), x.dtype) + biases

        return columns.__getitem__, joint

    # One product for all steps, kept in the dtype of its inputs.
    columns = tf.reshape(operands, (-1, input_dim))
    of_input = tf.matmul(kernel[:input_dim], columns, transpose_a=True, transpose_b=True)
    parts = tf.split(of_input, n_steps, axis=1) if unrolled(n_steps) else None
    recurrent = transposed_copy(kernel[input_dim:])

    def inputs_at(t):
        size = kernel.shape[1], n_rows
        return parts[t] if parts else tf.slice(of_input, (0, t * n_rows), size)

    def lifted(part, hidden):
        return tf.add_n([tf.cast(part, x.dtype), _times_columns(recurrent, hidden), biases])

    return inputs_at, lifted


def _step_function(step, kernel, n_steps):
    """Return a step, for a large cell in an unrolled loop as a function that is traced, optimized
    and compiled once for all steps. A call takes about 0.1 ms, which small cells would notice."""
    if unrolled(n_steps) and kernel.shape[1] >= MIN_SHARED:
        return tf.function(step, autograph=False, experimental_attributes={"_noinline": True})
    return step


def _kept(spec, t):
    """Return a list of the mask of a step, boolean (1, B); empty if all steps count."""
    return [] if spec.steps_mask is None else [spec.steps_mask[t][None] > 0]


def _backward(x, start, weights, spec, saved, upstream):
    """Return the gradients of x, both states and the weights, in this order."""
    kernel, _, *projection = weights
    kernel, *projection = (tf.cast(weight, spec.operands) for weight in (kernel, *projection))
    input_dim = x.shape[2]
    recurrent = kernel[input_dim:]
    outputs, cells, *gates, tanh_cells, unprojected = saved
    start_cell, start_hidden = (tf.transpose(part) for part in start)
    n_steps = x.shape[0] or tf.shape(x)[0]
    d_outputs = by_step(tf.transpose(upstream[0], (0, 2, 1)), n_steps)

    def step(d_output, d_cell, output, cell, old_cell, i, j, f, o, tanh_cell, keep=None):
        d_projected = d_output
        if spec.proj_clip:
            d_projected = _through_clip(d_output, output, spec.proj_clip)
        d_m = _times_columns(projection[0], d_projected) if projection else d_projected
        d_new = d_cell + tf.raw_ops.TanhGrad(y=tanh_cell, dy=d_m * o)
        if spec.cell_clip:
            d_new = _through_clip(d_new, cell, spec.cell_clip)
        d_activated = d_new * j, d_new * i, d_new * old_cell, d_m * tanh_cell
        d_gates = _through_activations((i, j, f, o), d_activated)
        d_old_cell = d_new * f
        if keep is not None:
            d_gates = tf.where(keep, d_gates, 0.0)
            d_old_cell = tf.where(keep, d_old_cell, d_cell)
            d_projected = tf.where(keep, d_projected, 0.0)
        d_old_hidden = _times_columns(recurrent, d_gates)
        if keep is not None:
            d_old_hidden = tf.where(keep, d_old_hidden, d_output)
        return d_old_cell, d_old_hidden, d_gates, d_projected

    step = _step_function(step, kernel, n_steps)

    def body(t, carry):
        d_cell, d_hidden = carry
        old_cell = _before(cells, start_cell, t, spec.reverse, n_steps)
        values = [series[t] for series in (*gates, tanh_cells)]
        d_output = d_outputs[t] + d_hidden
        found = step(d_output, d_cell, outputs[t], cells[t], old_cell, *values, *_kept(spec, t))
        return found[:2], found[2 : 3 + len(projection)]

    rows = start_hidden.shape[1]
    shapes = ((kernel.shape[1], rows), start_hidden.shape)[: 1 + len(projection)]
    carry = tuple(tf.transpose(part) for part in upstream[1:])
    carry, (d_gates, *d_projected) = loop(body, carry, n_steps, not spec.reverse, shapes, x.dtype)
    hidden = _columns(_shift(outputs, start_hidden, spec.reverse))
    d_x, *d_weights = _over_all_steps(x, hidden, kernel[:input_dim], _columns(d_gates), spec)
    if projection:
        d_projected = tf.cast(_columns(d_projected[0]), spec.operands)
        d_weights.append(_weight_gradient(_columns(unprojected), d_projected, x.dtype))
    return d_x, *(tf.transpose(part) for part in carry), *d_weights


def _through_activations(gates, gradients):
    """Return the gradient of the gates before activation, (4 D, B), from the ones after it."""
    kinds = (tf.raw_ops.SigmoidGrad, tf.raw_ops.TanhGrad, *[tf.raw_ops.SigmoidGrad] * 2)
    series = zip(kinds, gates, gradients, strict=True)
    return tf.concat([kind(y=gate, dy=gradient) for kind, gate, gradient in series], axis=0)


def _over_all_steps(x, hidden, input_kernel, d_gates, spec):
    """Return the gradients of x, kernel and bias from the gradients of the gates, (4 D, T B).

    Args:
        x: (T, B, input). hidden: (P, T B), the input h of each step. input_kernel: (input, 4 D).
    """
    d_bias = tf.reduce_sum(d_gates, axis=1)
    d_gates = tf.cast(d_gates, spec.operands)
    input_dim = x.shape[2]
    d_x = tf.cast(tf.matmul(input_kernel, d_gates), x.dtype)
    d_x = tf.transpose(tf.reshape(d_x, (input_dim, *tf.unstack(tf.shape(x)[:2]))), (1, 2, 0))
    read = tf.concat([tf.transpose(tf.reshape(x, (-1, input_dim))), hidden], axis=0)
    return d_x, _weight_gradient(read, d_gates, x.dtype), d_bias


def _through_clip(gradient, clipped, bound):
    """Return the gradient where the value is within its bound, and 0 elsewhere.

    A comparison and tf.where would give the same at several times the cost.
    """
    return tf.raw_ops.ReluGrad(gradients=gradient, features=bound - tf.abs(clipped))


def _rows_first(series):
    """Return (T, B, N) of a series of (N, B)."""
    return tf.transpose(tf.stack(series) if isinstance(series, list) else series, (0, 2, 1))


def _columns(series):
    """Concatenate the rows of all steps: T times (N, B) -> (N, T B)."""
    if isinstance(series, list):
        return tf.concat(series, axis=1)
    return tf.reshape(tf.transpose(series, (1, 0, 2)), (series.shape[1], -1))


def _before(series, first, t, reverse, n_steps):
    """Return the value of the step before t in reading order."""
    previous, at_first = (t + 1, t == n_steps - 1) if reverse else (t - 1, t == 0)
    if isinstance(series, list):
        return first if at_first else series[previous]
    return tf.where(at_first, first, series[tf.clip_by_value(previous, 0, n_steps - 1)])


def _shift(series, first, reverse):
    """Return for each step the value of the step before it in reading order."""
    if isinstance(series, list):
        return [*series[1:], first] if reverse else [first, *series[:-1]]
    if reverse:
        return tf.concat([series[1:], first[None]], axis=0)
    return tf.concat([first[None], series[:-1]], axis=0)


def _weight_gradient(left, right, dtype):
    """Sum over steps and rows of left right^T: (M, T B), (N, T B) -> (M, N)."""
    return tf.cast(tf.matmul(tf.cast(left, right.dtype), right, transpose_b=True), dtype)


def _times_columns(weight, x):
    """Multiply in the weight's type: (M, N), (N, B) -> (M, B) of the type of x."""
    return tf.cast(tf.matmul(weight, tf.cast(x, weight.dtype)), x.dtype)
