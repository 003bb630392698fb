"""Runs an `LSTM` over time on TensorFlow; contains the implementation for inference."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.tensorflow.lstm_loop import MAX_JOINT, loop, size_of
from bilm.layers.tensorflow.lstm_training import Spec, run_with_gradient
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import GATES, N_GATES


def run_over_time(
    cell: WeightedLayer,
    x: tf.Tensor,
    state: LSTMState,
    steps_mask: tf.Tensor | None,
    reverse: bool,
    training: bool | None,
    fresh: tf.Tensor | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Run an `LSTMCell` over time: see `LSTM`; `training` stores values for the gradient."""
    dtype = state.cell.dtype
    operands = dtype if cell.precision == "float32" else tf.as_dtype(cell.precision)
    # Floats, because oneDNN logs a message when it cannot slice booleans, and TensorFlow slices
    # int32 on the host.
    mask = None if steps_mask is None else tf.where(steps_mask, 1.0, 0.0)
    if training:
        stored = [cell.kernel, cell.bias, cell.projection]
        kernels = [tf.convert_to_tensor(weight) for weight in stored if weight is not None]
        return run_with_gradient(x, state, kernels, Spec(cell.clips, operands, mask, reverse))

    weights = cell.laid_out or cell_weights(cell, operands)
    n_steps = size_of(x, 0)
    library = weights.library(dtype)
    gates_at = weights.gates(x)
    # Multiplying by 0 or 1 is several times as fast as tf.where, and is equivalent because states
    # are finite.
    going_on = None
    if fresh is not None:
        going_on = tf.cast(tf.where(fresh, 0.0, 1.0), dtype)[:, :, None]  # T, B, 1

    def body(k, carry):
        t = n_steps - 1 - k if reverse else k
        old = LSTMState(*carry)
        if going_on is not None:
            old = LSTMState(old.cell * going_on[t], old.hidden * going_on[t])
        keep = None if mask is None else mask[t][:, None] > 0  # B, 1
        gates = gates_at(t, old.hidden)
        new = next_state(library, gates, old, weights.projection, cell.clips, keep).state
        return tuple(new), (new.hidden,)

    # Spare units start at 0, and remain 0.
    start = tf.pad(state.cell, [[0, 0], [0, weights.n_spare]]), state.hidden
    (last_cell, last_hidden), (outputs,) = loop(body, start, n_steps, False, [state.hidden.shape])
    if isinstance(outputs, list):
        outputs = tf.stack(outputs)  # T, B, P
    if reverse:
        # After the loop, because ONNX collects outputs in the order of the iterations.
        outputs = tf.reverse(outputs, [0])
    return outputs, LSTMState(last_cell[:, : state.cell.shape[1]], last_hidden)


# --- the weights of a cell as inference reads them ---


class CellWeights(NamedTuple):
    """The weights of a cell, in the dtype of matrix-multiplication inputs, in an arrangement.

    Fields:
        of_input: W_x, one matrix for all gates or one per gate. Empty for one product [x, h] W per
            step, instead of one product x W_x for all steps together and h W_h per step.
        recurrent: W_h, or W if `of_input` is empty, likewise.
        biases: b + u, likewise.
        projection: W_p, or None.
        n_spare: additional units per gate with zero weights. Their cells remain 0.
        negates_f: whether the weights of the gate f are negated, see `Library`.
    """

    of_input: list[tf.Tensor]
    recurrent: list[tf.Tensor]
    biases: list[tf.Tensor]
    projection: tf.Tensor | None
    n_spare: int = 0
    negates_f: bool = False

    def library(self, dtype: tf.DType) -> Library:
        """Return the functions of `lstm_equation`, whose results have a dtype."""

        def split(gates):
            if len(gates) > 1:
                return gates
            return tf.split(tf.cast(gates[0], dtype), N_GATES, axis=1)

        return Library(
            matmul=lambda x, weight: tf.cast(tf.matmul(tf.cast(x, weight.dtype), weight), dtype),
            sigmoid=lambda x: tf.cast(tf.sigmoid(x), dtype),
            tanh=lambda x: tf.cast(tf.tanh(x), dtype),
            clip=tf.clip_by_value,
            where=tf.where,
            split=split,
            negates_f=self.negates_f,
        )

    def gates(self, x: tf.Tensor) -> Callable[[int | tf.Tensor, tf.Tensor], list[tf.Tensor]]:
        """Return a function from a step of x, float (T, B, input), and a hidden state (B, P) to the
        gates before their activation: one for all (B, 4 D), or one each (B, D with spare units)."""
        dtype = self.biases[0].dtype
        operands = tf.cast(x, dtype)
        # One product for all steps, kept in the dtype of its inputs.
        of_input = []
        for matrix in self.of_input:
            product = tf.matmul(tf.reshape(operands, (-1, x.shape[-1])), matrix)  # T B, 4 D or D
            of_input.append(tf.reshape(product, (size_of(x, 0), size_of(x, 1), product.shape[1])))

        def gates_at(t, hidden):
            read = tf.cast(hidden, dtype)
            if not of_input:
                read = tf.concat([operands[t], read], axis=1)
            gates = []
            for k, matrix in enumerate(self.recurrent):
                # TensorFlow fuses tf.nn.bias_add with the product.
                gate = tf.nn.bias_add(tf.matmul(read, matrix), self.biases[k])
                if of_input:
                    gate = tf.cast(gate + of_input[k][t], x.dtype)
                gates.append(gate)
            return gates

        return gates_at


def cell_weights(cell: WeightedLayer, dtype: tf.DType | str) -> CellWeights:
    """Return the weights of an `LSTMCell` in a dtype. Those of a frozen cell, which never change,
    are arranged for the fastest computation: one matrix per gate, so that each gate is contiguous,
    and TensorFlow fuses a product, its bias and its activation into one operation. To split others
    would take longer than to run one or two sentences."""
    kernel = tf.cast(cell.kernel, dtype)
    projection = None if cell.projection is None else tf.cast(cell.projection, dtype)
    is_joint = kernel.shape[0] <= MAX_JOINT
    is_rounded = cell.precision == "bfloat16"
    negates_f = cell.frozen and is_rounded and is_joint
    n_spare = 0
    if cell.frozen and projection is not None and not is_rounded:
        # Rows of 2^k float32 values conflict in the processor's cache, which costs up to a fifth of
        # the time of a matrix multiplication. Without a projection, spare units would also lengthen
        # the output.
        n_spare = kernel.shape[1] // 256
        projection = tf.pad(projection, [[0, n_spare], [0, 0]])

    def arranged(weight, *rows):
        if not cell.frozen:
            return [weight[rows] if rows else weight]
        gates = []
        no_padding = [[0, 0]] * (len(weight.shape) - 1)
        # One gate at a time: LSTM weights are most of a model, so copies determine peak memory.
        for k, name in enumerate(GATES):
            columns = slice(k * cell.dim, (k + 1) * cell.dim)
            place = (*rows, ..., columns)
            gate = weight[place]
            if negates_f and name == "f":
                gate = -gate
            gates.append(tf.pad(gate, [*no_padding, [0, n_spare]]))
        return gates

    of_input = []
    if is_joint:
        recurrent = arranged(kernel)
    else:
        of_input = arranged(kernel, slice(cell.input_dim))
        recurrent = arranged(kernel, slice(cell.input_dim, None))
    biases = arranged(tf.cast(tf.convert_to_tensor(cell.bias) + forget_bias(cell.dim), dtype))
    return CellWeights(of_input, recurrent, biases, projection, n_spare, negates_f)
