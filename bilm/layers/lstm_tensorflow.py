"""`LSTM` over time on TensorFlow, its gradient written by hand.

TensorFlow's own gradient of a loop makes, at every step, one product for each weight and adds it
to a table of the weight's size. Here the backward loop only carries the gates' gradients; one
product over all steps then gives each weight's gradient.
"""

from __future__ import annotations

import tensorflow as tf

from bilm.layers.lstm import LSTMCell, LSTMState

MAX_UNROLL = 32


def run_over_time(cell: LSTMCell, input_gates, state, steps_mask, reverse, training):
    """Run a cell over time: see `LSTM` for shapes; `training` keeps what the gradient needs."""
    recurrent = cell.kernel[cell.input_dim :]
    weights = [recurrent] if cell.projection is None else [recurrent, tf.identity(cell.projection)]
    if steps_mask is not None:  # oneDNN does not slice booleans everywhere, and says so
        steps_mask = tf.where(steps_mask, 1, 0)
    clips = cell.cell_clip, cell.proj_clip if cell.projection is not None else None
    if not training:
        outputs, state, _ = _forward(input_gates, state, weights, clips, steps_mask, reverse)
        return outputs, state

    @tf.custom_gradient
    def run(input_gates, cell_state, hidden, *weights):
        start = LSTMState(cell_state, hidden)
        outputs, last, saved = _forward(
            input_gates, start, weights, clips, steps_mask, reverse, save=True
        )

        def gradient(d_outputs, d_cell, d_hidden):
            return _backward(
                start, weights, clips, steps_mask, reverse, saved, (d_outputs, d_cell, d_hidden)
            )

        return (outputs, *last), gradient

    outputs, *last = run(input_gates, *state, *weights)
    return outputs, LSTMState(*last)


def _loop(body, carry, n_steps, reverse, widths, like):
    """Run `carry, values = body(t, carry)` over time; give the last carry and stacked values.

    A short static length is unrolled, so that independent steps of the two directions overlap.
    """
    static = tf.get_static_value(n_steps)
    if static is not None and static <= MAX_UNROLL and not tf.executing_eagerly():
        steps = range(static - 1, -1, -1) if reverse else range(static)
        stacks = [[] for _ in widths]
        for t in steps:
            carry, values = body(t, carry)
            for stack, value in zip(stacks, values, strict=True):
                stack.append(value)
        return carry, [tf.stack(stack[::-1] if reverse else stack) for stack in stacks]

    batch = like.shape[0]
    arrays = [tf.TensorArray(like.dtype, n_steps, element_shape=(batch, width)) for width in widths]

    def advance(k, carry, arrays):
        t = n_steps - 1 - k if reverse else k
        carry, values = body(t, carry)
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
        return k + 1, carry, arrays

    _, carry, arrays = tf.while_loop(
        lambda k, *_: k < n_steps, advance, (tf.constant(0), tuple(carry), arrays)
    )
    return carry, [array.stack() for array in arrays]


def _forward(input_gates, state, weights, clips, steps_mask, reverse, save=False):
    """Give outputs (T, B, P), the last state and, with `save`, (gates, cells), else None."""
    recurrent, projection = weights[0], weights[1] if len(weights) > 1 else None
    cell_clip, proj_clip = clips

    def body(t, carry):
        old_cell, old_hidden = carry
        i, j, f, o = tf.split(input_gates[t] + tf.matmul(old_hidden, recurrent), 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + 1.0), tf.sigmoid(o)
        cell = f * old_cell + i * j
        if cell_clip:
            cell = tf.clip_by_value(cell, -cell_clip, cell_clip)
        hidden = o * tf.tanh(cell)
        if projection is not None:
            hidden = tf.matmul(hidden, projection)
            if proj_clip:
                hidden = tf.clip_by_value(hidden, -proj_clip, proj_clip)
        if steps_mask is not None:
            keep = steps_mask[t][:, None] > 0
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        carry = (tf.ensure_shape(cell, old_cell.shape), tf.ensure_shape(hidden, old_hidden.shape))
        return carry, (hidden, cell, tf.concat([i, j, f, o], 1)) if save else (hidden,)

    dim = state.cell.shape[1]
    widths = (state.hidden.shape[1], dim, 4 * dim) if save else (state.hidden.shape[1],)
    n_steps = input_gates.shape[0] or tf.shape(input_gates)[0]
    last, stacks = _loop(body, tuple(state), n_steps, reverse, widths, state.hidden)
    return stacks[0], LSTMState(*last), tuple(stacks) if save else None


def _backward(start, weights, clips, steps_mask, reverse, saved, upstream):
    """Give the gradients of input_gates, both states and the weights, in that order."""
    outputs, cells, gates = saved
    d_outputs, d_cell, d_hidden = upstream
    recurrent, projection = weights[0], weights[1] if len(weights) > 1 else None
    cell_clip, proj_clip = clips
    old_cells = _shift(cells, start.cell, reverse)

    def body(t, carry):
        d_cell, d_hidden = carry
        i, j, f, o = tf.split(gates[t], 4, axis=1)
        d_output = d_outputs[t] + d_hidden
        d_projected = d_output
        if projection is not None and proj_clip:
            d_projected = tf.where(tf.abs(outputs[t]) < proj_clip, d_output, 0.0)
        d_m = d_projected
        if projection is not None:
            d_m = tf.matmul(d_projected, projection, transpose_b=True)
        tanh_cell = tf.tanh(cells[t])
        d_new = d_cell + d_m * o * (1.0 - tanh_cell * tanh_cell)
        if cell_clip:
            d_new = tf.where(tf.abs(cells[t]) < cell_clip, d_new, 0.0)
        d_gates = tf.concat(
            [
                d_new * j * i * (1.0 - i),
                d_new * i * (1.0 - j * j),
                d_new * old_cells[t] * f * (1.0 - f),
                d_m * tanh_cell * o * (1.0 - o),
            ],
            axis=1,
        )
        d_old_cell = d_new * f
        if steps_mask is not None:
            keep = tf.cast(steps_mask[t][:, None], tf.bool)
            d_gates = tf.where(keep, d_gates, 0.0)
            d_old_cell = tf.where(keep, d_old_cell, d_cell)
            d_projected = tf.where(keep, d_projected, 0.0)
        d_old_hidden = tf.matmul(d_gates, recurrent, transpose_b=True)
        if steps_mask is not None:
            d_old_hidden = tf.where(keep, d_old_hidden, d_output)
        carry = (
            tf.ensure_shape(d_old_cell, d_cell.shape),
            tf.ensure_shape(d_old_hidden, d_hidden.shape),
        )
        return carry, (d_gates, d_projected)

    widths = (gates.shape[2], outputs.shape[2])
    n_steps = gates.shape[0] or tf.shape(gates)[0]
    (d_cell, d_hidden), (d_gates, d_projected) = _loop(
        body, (d_cell, d_hidden), n_steps, not reverse, widths, d_hidden
    )
    old_hiddens = _shift(outputs, start.hidden, reverse)
    d_weights = [_product(old_hiddens, d_gates)]
    if projection is not None:
        o = gates[:, :, -cells.shape[2] :]
        d_weights.append(_product(o * tf.tanh(cells), d_projected))
    return d_gates, d_cell, d_hidden, *d_weights


def _shift(values, first, reverse):
    """Give at each step the value of the step before it in the order of reading."""
    if reverse:
        return tf.concat([values[1:], first[None]], axis=0)
    return tf.concat([first[None], values[:-1]], axis=0)


def _product(left, right):
    """Sum over steps and rows of left^T right: (T, B, M), (T, B, N) -> (M, N)."""
    left = tf.reshape(left, (-1, left.shape[2]))
    return tf.matmul(left, tf.reshape(right, (-1, right.shape[2])), transpose_a=True)
