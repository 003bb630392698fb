"""`LSTM` over time on TensorFlow with a gradient written by hand.

TensorFlow's gradient of a loop computes one product per step and weight, and adds it to an array of
the size of the weight. Here the backward loop computes the gradients of the gates only; one product
over all steps then gives the gradient of each weight. Training is twice as fast.

In this module features come before rows: states are (D, B) and (P, B), gates (4 D, B). The four
gates are then contiguous, so splitting and joining them copies nothing; the backward loop reads the
weights as they are stored; and a product of a few rows in bfloat16 takes half as long. Weights are
transposed once, which would not pay off for a short sentence without a gradient.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import tensorflow as tf

from bilm.layers.lstm_equation import Library, LSTMState, Step, forget_bias, next_state
from bilm.layers.tensorflow.lstm_loop import (
    MAX_JOINT,
    by_step,
    loop,
    size_of,
    transposed_copy,
    unrolled,
)
from bilm.tensors import N_GATES

# Least number of columns of W, 4 D, at which a step is a separate function of the graph.
MIN_SHARED = 8192


class Spec(NamedTuple):
    """The settings of a run over time."""

    clips: tuple[float | None, float | None]  # of the cell and of the projected output
    operands: tf.DType  # of matrix-multiplication inputs
    steps_mask: tf.Tensor | None  # float T, B: 0 where a step is skipped
    reverse: bool

    def keep(self, t: int | tf.Tensor) -> tf.Tensor | None:
        """Return the mask of a step, boolean (1, B); None if all steps count."""
        return None if self.steps_mask is None else self.steps_mask[t][None] > 0


def run_with_gradient(
    x: tf.Tensor, start: LSTMState, weights: Sequence[tf.Tensor], spec: Spec
) -> tuple[tf.Tensor, LSTMState]:
    """Run over time from x (T, B, input); `weights`: kernel, bias and, if any, projection."""

    @tf.custom_gradient
    def run(x, cell_state, hidden, *weights):
        start = LSTMState(cell_state, hidden)
        outputs, last, saved = _forward(x, start, weights, spec)

        def gradient(d_outputs, d_cell, d_hidden):
            d_last = LSTMState(d_cell, d_hidden)
            return _backward(x, start, weights, spec, saved, d_outputs, d_last)

        return (outputs, *last), gradient

    outputs, *last = run(x, *start, *weights)
    return outputs, LSTMState(*last)


# --- forward ---


def _forward(x, state, weights, spec):
    """Return outputs (T, B, P), the last state and the series of the values of `Step`."""
    kernel, bias, *projection = weights
    n_steps = size_of(x, 0)
    units = tf.constant(forget_bias(bias.shape[0] // N_GATES), bias.dtype)
    inputs_at, gates_from = _gates(x, tf.cast(kernel, spec.operands), bias + units, spec)
    w_p = transposed_copy(tf.cast(projection[0], spec.operands)) if projection else None  # P, D
    library = Library(
        matmul=_product,
        sigmoid=tf.sigmoid,
        tanh=tf.tanh,
        clip=tf.clip_by_value,
        where=tf.where,
        split=partial(tf.split, num_or_size_splits=N_GATES, axis=0),
    )

    def step(inputs, old_cell, old_hidden, keep):
        old = LSTMState(old_cell, old_hidden)
        gates_before = gates_from(inputs, old_hidden)  # 4 D, B
        return tuple(next_state(library, gates_before, old, w_p, spec.clips, keep))

    step = _step_function(step, kernel, n_steps)

    def body(t, carry):
        values = Step(*step(inputs_at(t), *carry, spec.keep(t)))
        return tuple(values.state), values

    cell, hidden = (tf.transpose(part) for part in state)  # D, B and P, B
    shapes = [cell.shape, hidden.shape, *[cell.shape] * 6]  # of `Step`
    last, series = loop(body, (cell, hidden), n_steps, spec.reverse, shapes)
    saved = Step(*series)
    outputs = tf.stack(saved.hidden) if isinstance(saved.hidden, list) else saved.hidden
    last = LSTMState(*(tf.transpose(part) for part in last))
    return tf.transpose(outputs, (0, 2, 1)), last, saved


def _gates(x, kernel, bias, spec):
    """Return the function from a step t to its input, and the function from this input and a hidden
    state (P, B) to gates before activation, float (4 D, B)."""
    n_steps = size_of(x, 0)
    n_rows = size_of(x, 1)
    input_dim = x.shape[2]
    operands = tf.cast(x, spec.operands)
    biases = tf.tile(bias[:, None], (1, n_rows))  # 4 D, B: faster than broadcasting

    if kernel.shape[0] <= MAX_JOINT:
        joint_kernel = transposed_copy(kernel)  # 4 D, input + P
        columns = by_step(tf.transpose(operands, (0, 2, 1)), n_steps)  # T, input, B

        def joint(inputs, hidden):
            read = tf.concat([inputs, tf.cast(hidden, spec.operands)], axis=0)  # input + P, B
            product = tf.matmul(joint_kernel, read)
            return tf.cast(product, x.dtype) + biases

        return columns.__getitem__, joint

    # One product for all steps, kept in the dtype of its inputs.
    rows = tf.reshape(operands, (-1, input_dim))  # T B, input
    of_input = tf.matmul(kernel[:input_dim], rows, transpose_a=True, transpose_b=True)  # 4 D, T B
    recurrent = transposed_copy(kernel[input_dim:])  # 4 D, P

    def inputs_at(t):
        return tf.slice(of_input, (0, t * n_rows), (kernel.shape[1], n_rows))

    def lifted(of_step, hidden):
        of_hidden = _product(hidden, recurrent)
        return tf.add_n([tf.cast(of_step, x.dtype), of_hidden, biases])

    return inputs_at, lifted


def _step_function(step, kernel, n_steps):
    """Return a step, for a large cell in an unrolled loop on a CPU as a function that is traced,
    optimized and compiled once for all steps. A call takes about 0.1 ms, which small cells and GPUs
    would notice."""
    is_large = kernel.shape[1] >= MIN_SHARED
    if is_large and unrolled(n_steps) and not tf.config.get_visible_devices("GPU"):
        return tf.function(step, autograph=False, experimental_attributes={"_noinline": True})
    return step


# --- backward ---


def _backward(x, start, weights, spec, saved, d_outputs, d_last):
    """Return the gradients of x, state and weights, from those of outputs and last state."""
    kernel, _, *projection = weights
    kernel = tf.cast(kernel, spec.operands)
    projection = [tf.cast(weight, spec.operands) for weight in projection]
    input_dim = x.shape[2]
    n_steps = size_of(x, 0)
    start_cell, start_hidden = (tf.transpose(part) for part in start)
    d_outputs = by_step(tf.transpose(d_outputs, (0, 2, 1)), n_steps)  # T, P, B
    old_cells = _shift(saved.cell, start_cell, spec.reverse)

    # Backwards through time: the gradients of the gates and of the projected output at each step.
    shapes = [tf.TensorShape((kernel.shape[1], start_hidden.shape[1]))]  # of the gates: 4 D, B
    if projection:
        shapes.append(start_hidden.shape)  # of the projected output: P, B
    step = _step_gradient(kernel[input_dim:], projection[0] if projection else None, spec)
    step = _step_function(step, kernel, n_steps)

    def body(t, carry):
        d_cell, d_hidden = carry
        d_hidden = d_outputs[t] + d_hidden
        gates = [series[t] for series in (saved.i, saved.j, saved.f, saved.o)]
        values = saved.hidden[t], saved.cell[t], old_cells[t], *gates, saved.tanh_cell[t]
        d_old_cell, d_old_hidden, *of_step = step(d_hidden, d_cell, *values, spec.keep(t))
        return (d_old_cell, d_old_hidden), of_step[: len(shapes)]

    d_start = tuple(tf.transpose(part) for part in d_last)
    d_start, series = loop(body, d_start, n_steps, not spec.reverse, shapes)
    d_gates, *d_projected = map(_columns, series)  # 4 D, T B and P, T B

    # One product over all steps: the input's gradient.
    d_bias = tf.reduce_sum(d_gates, axis=1)  # 4 D
    d_gates = tf.cast(d_gates, spec.operands)
    d_x = tf.cast(tf.matmul(kernel[:input_dim], d_gates), x.dtype)  # input, T B
    d_x = tf.reshape(d_x, (input_dim, n_steps, size_of(x, 1)))  # input, T, B
    d_x = tf.transpose(d_x, (1, 2, 0))  # T, B, input

    # One product over all steps for each weight.
    hidden = _columns(_shift(saved.hidden, start_hidden, spec.reverse))  # P, T B: h of each step
    columns = tf.transpose(tf.reshape(x, (-1, input_dim)))  # input, T B
    read = tf.concat([columns, hidden], axis=0)  # input + P, T B
    d_weights = [_weight_gradient(read, d_gates, x.dtype), d_bias]
    if projection:
        d_projected = tf.cast(d_projected[0], spec.operands)
        d_weights.append(_weight_gradient(_columns(saved.unprojected), d_projected, x.dtype))
    return d_x, *(tf.transpose(part) for part in d_start), *d_weights


def _step_gradient(recurrent: tf.Tensor, w_p: tf.Tensor | None, spec: Spec) -> Callable:
    """Return the gradient of one step of `lstm_equation`, with `recurrent` (P, 4 D) for W_h.

    With p = W_p m, m = sigmoid(o) tanh(c'), and d for the gradient of the loss by what follows:

    dp = dh'                                          where the clip of h' let p pass, else 0
    dm = W_p dp
    dc = dc' + dm sigmoid(o) (1 - tanh(c')^2)         where the clip of c' let c pass, else 0
    di, dj, df, do = the derivatives of their activations times dc j, dc i, dc c, dm tanh(c')
    dc (of the step before) = dc f
    dh (of the step before) = W_h [di, dj, df, do]

    Rows whose step is skipped pass dc' and dh' on unchanged.
    """

    cell_clip, proj_clip = spec.clips

    def step(d_hidden, d_cell, hidden, cell, old_cell, i, j, f, o, tanh_cell, keep):
        # The projection and its clip: dp and dm.
        d_projected = d_hidden  # P, B
        if proj_clip and w_p is not None:
            d_projected = _through_clip(d_hidden, hidden, proj_clip)
        d_unprojected = d_projected  # D, B
        if w_p is not None:
            d_unprojected = _product(d_projected, w_p)

        # The cell and its clip: dc.
        d_new = d_cell + tf.raw_ops.TanhGrad(y=tanh_cell, dy=d_unprojected * o)  # D, B
        if cell_clip:
            d_new = _through_clip(d_new, cell, cell_clip)

        # The gates: di, dj, df, do.
        d_i = tf.raw_ops.SigmoidGrad(y=i, dy=d_new * j)
        d_j = tf.raw_ops.TanhGrad(y=j, dy=d_new * i)
        d_f = tf.raw_ops.SigmoidGrad(y=f, dy=d_new * old_cell)
        d_o = tf.raw_ops.SigmoidGrad(y=o, dy=d_unprojected * tanh_cell)
        d_gates = tf.concat([d_i, d_j, d_f, d_o], axis=0)  # 4 D, B

        # The state before the step.
        d_old_cell = d_new * f
        if keep is not None:
            d_gates = tf.where(keep, d_gates, 0.0)
            d_old_cell = tf.where(keep, d_old_cell, d_cell)
            d_projected = tf.where(keep, d_projected, 0.0)
        d_old_hidden = _product(d_gates, recurrent)  # P, B
        if keep is not None:
            d_old_hidden = tf.where(keep, d_old_hidden, d_hidden)
        return d_old_cell, d_old_hidden, d_gates, d_projected

    return step


def _through_clip(gradient, clipped, bound):
    """Return the gradient where the value is within its bound, else 0, faster than tf.where."""
    return tf.raw_ops.ReluGrad(gradients=gradient, features=bound - tf.abs(clipped))


def _weight_gradient(left, right, dtype):
    """Sum over steps and rows of left right^T: (M, T B), (N, T B) -> (M, N)."""
    product = tf.matmul(tf.cast(left, right.dtype), right, transpose_b=True)
    return tf.cast(product, dtype)


def _product(x, weight):
    """Multiply in the weight's type: (N, B), (M, N) -> (M, B) of the type of x."""
    product = tf.matmul(weight, tf.cast(x, weight.dtype))
    return tf.cast(product, x.dtype)


# --- series: lists of T tensors, or one tensor (T, ...) ---


def _columns(series):
    """Concatenate the rows of all steps: T times (N, B) -> (N, T B)."""
    if isinstance(series, list):
        return tf.concat(series, axis=1)
    return tf.reshape(tf.transpose(series, (1, 0, 2)), (series.shape[1], -1))


def _shift(series, first, reverse):
    """Return for each step the value of the step before it in reading order."""
    if isinstance(series, list):
        return [*series[1:], first] if reverse else [first, *series[:-1]]
    if reverse:
        return tf.concat([series[1:], first[None]], axis=0)
    return tf.concat([first[None], series[:-1]], axis=0)
