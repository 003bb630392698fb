"""`LSTM` over time on TensorFlow, its gradient written by hand.

TensorFlow's own gradient of a loop makes, at every step, one product for each weight and adds it
to a table of the weight's size. Here the backward loop only carries the gates' gradients; one
product over all steps then gives each weight's gradient.

On two cores a product of a few rows with a float32 matrix that is to be transposed takes up to four
times that with a matrix stored the other way: the backward loop's weights are transposed once.
With bfloat16 operands there is no such difference. Weights are cast to it once, before the loop.
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
    spec = _Spec(
        cell.cell_clip,
        cell.proj_clip if cell.projection is not None else None,
        tf.as_dtype(cell.precision) if cell.precision != "float32" else x.dtype,
        steps_mask,
        reverse,
        fresh,
    )
    if not training:
        outputs, state, _ = _forward(x, state, weights, spec)
        return outputs, state

    @tf.custom_gradient
    def run(x, cell_state, hidden, *weights):
        start = LSTMState(cell_state, hidden)
        outputs, last, saved = _forward(x, start, weights, spec, save=True)

        def gradient(d_outputs, d_cell, d_hidden):
            upstream = d_outputs, d_cell, d_hidden
            return _backward(x, start, weights, spec, outputs, saved, upstream)

        return (outputs, *last), gradient

    outputs, *last = run(x, *state, *weights)
    return outputs, LSTMState(*last)


class _Spec(NamedTuple):
    """What a run over time is like: `operands` is the type that products read."""

    cell_clip: float | None
    proj_clip: float | None
    operands: tf.DType
    steps_mask: tf.Tensor | None
    reverse: bool
    fresh: tf.Tensor | None


def _loop(body, carry, n_steps, reverse, widths, like):
    """Run `carry, values = body(t, carry)` over time; give the last carry and each value's series.

    A short static length is unrolled, so that independent steps of the two directions overlap; a
    series is then a list of the steps' tensors, and otherwise one tensor (T, B, width).
    """
    static = tf.get_static_value(n_steps)
    if static is not None and static <= MAX_UNROLL and not tf.executing_eagerly():
        steps = range(static - 1, -1, -1) if reverse else range(static)
        series = [[None] * static for _ in widths]
        for t in steps:
            carry, values = body(t, carry)
            for one, value in zip(series, values, strict=True):
                one[t] = value
        return carry, series

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


def _forward(x, state, weights, spec, save=False):
    """Give outputs (T, B, P), the last state and, with `save`, what the gradient needs."""
    kernel, bias, *projection = weights
    kernel, *projection = (tf.cast(weight, spec.operands) for weight in (kernel, *projection))
    forget_bias = tf.repeat(tf.constant([0.0, 0.0, 1.0, 0.0], bias.dtype), state.cell.shape[1])
    gates_at = _gates(x, kernel, bias + forget_bias, spec)
    n_steps = x.shape[0] or tf.shape(x)[0]
    cell_clip, proj_clip = spec.cell_clip, spec.proj_clip

    def body(t, carry):
        old_cell, old_hidden = carry
        if spec.fresh is not None:
            first = spec.fresh[t][:, None] > 0
            old_cell, old_hidden = (tf.where(first, 0.0, old) for old in carry)
        i, j, f, o = tf.split(gates_at(t, old_hidden), 4, axis=1)
        i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
        cell = f * old_cell + i * j
        if cell_clip:
            cell = tf.clip_by_value(cell, -cell_clip, cell_clip)
        tanh_cell = tf.tanh(cell)
        unprojected = hidden = o * tanh_cell
        if projection:
            hidden = _times(hidden, projection[0])
            if proj_clip:
                hidden = tf.clip_by_value(hidden, -proj_clip, proj_clip)
        if spec.steps_mask is not None:
            keep = spec.steps_mask[t][:, None] > 0
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        carry = (tf.ensure_shape(cell, old_cell.shape), tf.ensure_shape(hidden, old_hidden.shape))
        kept = (hidden, cell, i, j, f, o, tanh_cell, unprojected)
        return carry, kept if save else kept[:1]

    dim = state.cell.shape[1]
    widths = (state.hidden.shape[1], *[dim] * 7) if save else (state.hidden.shape[1],)
    last, (outputs, *saved) = _loop(body, tuple(state), n_steps, spec.reverse, widths, state.hidden)
    return _stacked(outputs), LSTMState(*last), saved


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


def _backward(x, start, weights, spec, outputs, saved, upstream):
    """Give the gradients of x, both states and the weights, in that order."""
    d_outputs, d_cell, d_hidden = upstream
    kernel, _, *projection = weights
    input_dim = x.shape[2]
    recurrent = _Transposed(kernel[input_dim:], spec.operands)
    projection = [_Transposed(weight, spec.operands) for weight in projection]
    cells, *gates, tanh_cells, unprojected = saved
    n_steps = outputs.shape[0] or tf.shape(outputs)[0]

    def body(t, carry):
        d_cell, d_hidden = carry
        i, j, f, o = (series[t] for series in gates)
        d_projected = d_output = d_outputs[t] + d_hidden
        if spec.proj_clip:
            d_projected = _through_clip(d_output, outputs[t], spec.proj_clip)
        d_m = projection[0].product(d_projected) if projection else d_projected
        d_new = d_cell + tf.raw_ops.TanhGrad(y=tanh_cells[t], dy=d_m * o)
        if spec.cell_clip:
            d_new = _through_clip(d_new, cells[t], spec.cell_clip)
        old_cell = _before(cells, start.cell, t, spec.reverse, n_steps)
        d_gates = tf.concat(
            [
                tf.raw_ops.SigmoidGrad(y=i, dy=d_new * j),
                tf.raw_ops.TanhGrad(y=j, dy=d_new * i),
                tf.raw_ops.SigmoidGrad(y=f, dy=d_new * old_cell),
                tf.raw_ops.SigmoidGrad(y=o, dy=d_m * tanh_cells[t]),
            ],
            axis=1,
        )
        d_old_cell = d_new * f
        if spec.steps_mask is not None:
            keep = spec.steps_mask[t][:, None] > 0
            d_gates = tf.where(keep, d_gates, 0.0)
            d_old_cell = tf.where(keep, d_old_cell, d_cell)
            d_projected = tf.where(keep, d_projected, 0.0)
        d_old_hidden = recurrent.product(d_gates)
        if spec.steps_mask is not None:
            d_old_hidden = tf.where(keep, d_old_hidden, d_output)
        carry = (
            tf.ensure_shape(d_old_cell, d_cell.shape),
            tf.ensure_shape(d_old_hidden, d_hidden.shape),
        )
        return carry, (d_gates, d_projected) if projection else (d_gates,)

    dim = start.cell.shape[1]
    widths = (4 * dim, start.hidden.shape[1]) if projection else (4 * dim,)
    (d_cell, d_hidden), (d_gates, *d_projected) = _loop(
        body, (d_cell, d_hidden), n_steps, not spec.reverse, widths, d_hidden
    )
    d_gates = _rows(_stacked(d_gates))
    d_bias = tf.reduce_sum(d_gates, axis=0)
    d_gates = tf.cast(d_gates, spec.operands)
    d_x = _Transposed(kernel[:input_dim], spec.operands).product(d_gates)
    read = tf.concat([x, _shift(outputs, start.hidden, spec.reverse)], axis=2)
    d_weights = [_weight_gradient(_rows(read), d_gates, x.dtype), d_bias]
    if projection:
        d_projected = tf.cast(_rows(_stacked(d_projected[0])), spec.operands)
        d_weights.append(_weight_gradient(_rows(_stacked(unprojected)), d_projected, x.dtype))
    return tf.cast(tf.reshape(d_x, tf.shape(x)), x.dtype), d_cell, d_hidden, *d_weights


def _through_clip(gradient, clipped, bound):
    """Give the gradient where a value is within its bound, and 0 elsewhere.

    Comparing and choosing would give the same at several times the cost, through booleans.
    """
    return tf.raw_ops.ReluGrad(gradients=gradient, features=bound - tf.abs(clipped))


class _Transposed:
    """A weight whose transpose is multiplied with: at every step of the backward loop, and once."""

    def __init__(self, weight, operands):
        self._as_is = operands != tf.float32
        if self._as_is:
            self._weight = tf.cast(weight, operands)
        else:  # without a node between, TensorFlow folds the copy back into each of its products
            self._weight = tf.ensure_shape(tf.transpose(weight), weight.shape[::-1])

    def product(self, x):
        """Give x W^T: float (B, N) -> (B, K)."""
        return _times(x, self._weight, transpose_b=self._as_is)


def _times(x, weight, transpose_b=False):
    """Multiply in the weight's type; the result has that of x."""
    return tf.cast(tf.matmul(tf.cast(x, weight.dtype), weight, transpose_b=transpose_b), x.dtype)


def _stacked(series):
    return tf.stack(series) if isinstance(series, list) else series


def _before(series, first, t, reverse, n_steps):
    """Give the value of the step before t in the order of reading."""
    previous, at_first = (t + 1, t == n_steps - 1) if reverse else (t - 1, t == 0)
    if isinstance(series, list):
        return first if at_first else series[previous]
    return tf.where(at_first, first, series[tf.clip_by_value(previous, 0, n_steps - 1)])


def _shift(values, first, reverse):
    """Give at each step the value of the step before it in the order of reading."""
    if reverse:
        return tf.concat([values[1:], first[None]], axis=0)
    return tf.concat([first[None], values[:-1]], axis=0)


def _rows(values):
    """Put steps and rows on one axis: (T, B, N) -> (T B, N)."""
    return tf.reshape(values, (-1, values.shape[2]))


def _weight_gradient(left, right, dtype):
    """Sum over steps and rows of left^T right: (T B, M), (T B, N) -> (M, N)."""
    return tf.cast(tf.matmul(tf.cast(left, right.dtype), right, transpose_a=True), dtype)
