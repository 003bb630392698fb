"""`LSTM` over time on TensorFlow without a gradient: rows side by side, as they come."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.state import LSTMState
from bilm.layers.tensorflow.lstm_loop import (
    MAX_JOINT,
    loop,
    next_cell,
    projected,
    with_forget_bias,
)
from bilm.layers.tensorflow.products import rows_times


class Operands(NamedTuple):
    """A cell's weights as products read them, all gates in one matrix or one each in a list.

    Fields:
        of_input: the input's part; empty where x and the hidden state are multiplied together.
        recurrent: the hidden state's part, or both, those of x above.
        biases: with the forget gate's 1.
        projection: empty where there is none.
        transposed: whether `of_input` and `recurrent` are (outputs, inputs).
        negated: whether the forget gate's part is, so that what comes out is what is forgotten.
    """

    of_input: list[tf.Tensor]
    recurrent: list[tf.Tensor]
    biases: list[tf.Tensor]
    projection: list[tf.Tensor]
    transposed: bool = False
    negated: bool = False


def operands(cell: Any, dtype: tf.DType) -> Operands:
    """Return a cell's weights in the type of the operands, all gates together as stored."""
    kernel, bias = tf.convert_to_tensor(cell.kernel), tf.convert_to_tensor(cell.bias)
    kernel, n_inputs = tf.cast(kernel, dtype), cell.input_dim
    joint = kernel.shape[0] <= MAX_JOINT
    return Operands(
        [] if joint else [kernel[:n_inputs]],
        [kernel if joint else kernel[n_inputs:]],
        [tf.cast(with_forget_bias(bias), dtype)],
        [tf.cast(w, dtype) for w in [cell.projection] if w is not None],
    )


def freeze(cell: Any) -> None:
    """Take the gates apart for good and lay them out as products are fastest.

    Each gate then comes out of its product in memory of its own, a joint one after its activation.
    Done at every call, the copies would take longer than a sentence or two.
    """
    with tf.init_scope():  # what is kept outlives the graph in which it may be requested
        _freeze(cell)


def _freeze(cell: Any) -> None:
    together = operands(cell, tf.as_dtype(cell.precision))
    rounded, joint = cell.precision != "float32", not together.of_input
    # In float32 rows of 2^k numbers get into each other's way in the cache, a fifth of the time of
    # such a product: a few units are added which stay at zero.
    units = [0, 0 if rounded or not together.projection else cell.dim // 64]
    transposed = rounded and not joint  # up to a fifth faster again
    # A gate of 0.998 would be rounded to 1, and its cell never forget; 0.002 is rounded to 0.002.
    negated = rounded and joint

    def apart(weight):
        i, j, f, o = tf.split(weight, 4, axis=-1)
        gates = [i, j, -f if negated else f, o]
        return [tf.pad(gate, [[0, 0]] * (len(gate.shape) - 1) + [units]) for gate in gates]

    def laid_out(kernels):
        gates = [gate for kernel in kernels for gate in apart(kernel)]
        return [tf.transpose(gate) for gate in gates] if transposed else gates

    cell.frozen = Operands(
        laid_out(together.of_input),
        laid_out(together.recurrent),
        apart(together.biases[0]),
        [tf.pad(projection, [units, [0, 0]]) for projection in together.projection],
        transposed,
        negated,
    )


def run(x, state, weights, spec):
    """Return outputs (T, B, P) and the last state.

    Args:
        x: (T, B, input). state: `LSTMState`. weights: `Operands`. spec: `Spec`.
    """
    gates_at = _gates(x, weights, spec)
    # Multiplied, since to choose by a condition takes several times as long; states are finite.
    going_on = None if spec.fresh is None else tf.cast(1 - spec.fresh, x.dtype)[:, :, None]
    n_steps = x.shape[0] or tf.shape(x)[0]

    def body(t, carry):
        old_cell, old_hidden = carry
        if going_on is not None:
            old_cell, old_hidden = (old * going_on[t] for old in carry)
        i, j, f, o = gates_at(t, tf.cast(old_hidden, spec.operands))
        cell = next_cell(i, j, f, old_cell, spec.cell_clip)
        hidden = projected(o * tf.tanh(cell), weights.projection, spec.proj_clip, rows_times)
        if spec.steps_mask is not None:
            keep = spec.steps_mask[t][:, None] > 0
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        return (cell, hidden), (hidden,)

    n_units = state.cell.shape[1]
    n_empty = sum(bias.shape[0] for bias in weights.biases) // 4 - n_units
    start = tf.pad(state.cell, [[0, 0], [0, n_empty]]), state.hidden
    shapes = (state.hidden.shape,)
    last, (outputs,) = loop(body, start, n_steps, spec.reverse, shapes, x.dtype)
    last = LSTMState(last[0][:, :n_units], last[1])
    return tf.stack(outputs) if isinstance(outputs, list) else outputs, last


def _gates(x, weights, spec):
    """Return the function of a step and a hidden state that makes the four gates, (B, D) each."""
    x_operands = tf.cast(x, spec.operands)
    activations = (tf.sigmoid, tf.tanh, tf.sigmoid, tf.sigmoid)

    def products(read, kernels):
        return [tf.matmul(read, k, transpose_b=weights.transposed) for k in kernels]

    def biased(read):
        return list(map(tf.nn.bias_add, products(read, weights.recurrent), weights.biases))

    rows = tf.reshape(x_operands, (-1, x.shape[2]))
    shape = [x.shape[k] or tf.shape(x)[k] for k in range(2)]
    # One product for all steps, kept in the operands' type.
    of_input = [tf.reshape(y, (*shape, y.shape[1])) for y in products(rows, weights.of_input)]

    def gates_at(t, hidden):
        if of_input:
            sums = zip(biased(hidden), of_input, strict=True)
            gates = [tf.cast(part + other[t], x.dtype) for part, other in sums]
        else:
            gates = biased(tf.concat([x_operands[t], hidden], axis=1))
        if len(gates) == 1:
            gates = tf.split(tf.cast(gates[0], x.dtype), 4, axis=1)
        # Of a product of its own, its bias and its activation TensorFlow makes one operation.
        gates = (activate(gate) for activate, gate in zip(activations, gates, strict=True))
        i, j, f, o = (tf.cast(gate, x.dtype) for gate in gates)
        return i, j, 1.0 - f if weights.negated else f, o

    return gates_at
