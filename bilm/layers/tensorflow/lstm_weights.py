"""Layouts of the weights of an LSTM cell for inference, and the gates computed with each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.layers.tensorflow.lstm_loop import MAX_JOINT, with_forget_bias
from bilm.support.process import return_freed_memory

GATE_ACTIVATIONS = (tf.sigmoid, tf.tanh, tf.sigmoid, tf.sigmoid)  # of i, j, f, o


class Layout(NamedTuple):
    """How W and b are arranged in memory. Every layout yields the same gates, [x, h] W + b.

    Stored weights have the rows W = [W_x; W_h], input above hidden state, and the columns
    W = [W_i, W_j, W_f, W_o], the gates. A layout may differ from this in four ways:

    Fields:
        joint: one product [x, h] W per step, instead of one product x W_x for all steps together
            and h W_h per step.
        apart: one matrix per gate. Each gate is then contiguous, and TensorFlow fuses a product,
            its bias and its activation into one operation.
        forgetting: -W_f and -b_f instead of W_f and b_f, which give 1 - f since
            sigmoid(-s) = 1 - sigmoid(s). In bfloat16 f = 0.998 would be rounded to 1, and the cell
            would never forget; 1 - f = 0.002 is kept.
        n_spare: additional units per gate with zero weights. Their cells remain 0.
    """

    joint: bool
    apart: bool = False
    forgetting: bool = False
    n_spare: int = 0

    @classmethod
    def frozen(cls, kernel: Any, projection: Any, rounded: bool) -> Layout:
        """Return the fastest layout for weights that never change.

        Args:
            kernel, projection: see `LSTMCell`; `projection` may be None.
            rounded: whether matrix-multiplication inputs are bfloat16.
        """
        joint = kernel.shape[0] <= MAX_JOINT
        # Rows of 2^k float32 values conflict in the processor's cache, which costs up to a fifth of
        # the time of a matrix multiplication. Without a projection, spare units would also lengthen
        # the output.
        n_spare = 0 if projection is None or rounded else kernel.shape[1] // 256
        return cls(joint, True, rounded and joint, n_spare)


class CellWeights(NamedTuple):
    """The weights of a cell in a layout, in the dtype of matrix-multiplication inputs.

    Fields:
        layout: the layout of the other fields.
        of_input: W_x, one matrix per gate or one for all gates; empty if `layout.joint`.
        recurrent: W_h, or W if `layout.joint`; one matrix per gate or one for all gates.
        biases: b, with 1 added to the forget gate; one vector per gate or one for all gates.
        projection: the matrix, or None.
    """

    layout: Layout
    of_input: list[tf.Tensor]
    recurrent: list[tf.Tensor]
    biases: list[tf.Tensor]
    projection: tf.Tensor | None

    @classmethod
    def of(
        cls, layout: Layout, n_inputs: int, dtype: tf.DType, kernel: Any, bias: Any, projection: Any
    ) -> CellWeights:
        """Arrange the stored weights of a cell.

        Args:
            layout, n_inputs, dtype: the layout, the number of rows of W_x, and the dtype of
                matrix-multiplication inputs.
            kernel, bias, projection: see `LSTMCell`; `projection` may be None.
        """
        spare = [0, layout.n_spare]

        def split(weight, *rows):
            if not layout.apart:
                return [weight[rows] if rows else weight]
            gates, width = [], weight.shape[-1] // 4
            # One gate at a time: LSTM weights are most of a model, so copies determine peak memory.
            for k, name in enumerate("ijfo"):
                places = (*rows, ..., slice(k * width, (k + 1) * width))
                gate = weight[places]
                gate = -gate if layout.forgetting and name == "f" else gate
                gates.append(tf.pad(gate, [*[[0, 0]] * (len(gate.shape) - 1), spare]))
            return gates

        kernel = tf.cast(kernel, dtype)
        of_input = [] if layout.joint else split(kernel, slice(n_inputs))
        recurrent = split(kernel) if layout.joint else split(kernel, slice(n_inputs, None))
        biases = split(tf.cast(with_forget_bias(tf.convert_to_tensor(bias)), dtype))
        if projection is not None:
            projection = tf.pad(tf.cast(projection, dtype), [spare, [0, 0]])
        return cls(layout, of_input, recurrent, biases, projection)

    def arrays(self, n_units: int) -> tuple[list[np.ndarray], list[np.ndarray], Any]:
        """Return W and b, by gate i, j, f, o, and the projection or None, as NumPy arrays of
        `n_units` units, without spare ones; only of frozen, joint float32 weights."""
        gates = [np.asarray(gate)[:, :n_units] for gate in self.recurrent]
        biases = [np.asarray(bias)[:n_units] for bias in self.biases]
        projection = None if self.projection is None else np.asarray(self.projection)[:n_units]
        return gates, biases, projection

    def gates(self, x: Any) -> Any:
        """Return a function that maps a step and a hidden state (B, P) to the gates i, j, f, o,
        each (B, D).

        Args:
            x: float (T, B, input). Gates have its dtype; D includes spare units.
        """
        dtype = self.biases[0].dtype
        operands = tf.cast(x, dtype)
        # One product for all steps, kept in the dtype of its inputs.
        of_input = [_times_all(operands, matrix) for matrix in self.of_input]

        def gates_at(t, hidden):
            hidden = tf.cast(hidden, dtype)
            read = tf.concat([operands[t], hidden], axis=1) if self.layout.joint else hidden
            # TensorFlow fuses tf.nn.bias_add with the product.
            parts = [
                tf.nn.bias_add(tf.matmul(read, matrix), bias)
                for matrix, bias in zip(self.recurrent, self.biases, strict=True)
            ]
            if of_input:
                pairs = zip(parts, of_input, strict=True)
                parts = [tf.cast(part + other[t], x.dtype) for part, other in pairs]
            if not self.layout.apart:
                parts = tf.split(tf.cast(parts[0], x.dtype), 4, axis=1)
            pairs = zip(GATE_ACTIVATIONS, parts, strict=True)
            i, j, f, o = (tf.cast(activate(part), x.dtype) for activate, part in pairs)
            return i, j, 1.0 - f if self.layout.forgetting else f, o

        return gates_at

    def project(self, hidden: Any) -> Any:
        """Multiply with the projection, if there is one: float (B, D) -> (B, P)."""
        if self.projection is None:
            return hidden
        product = tf.matmul(tf.cast(hidden, self.projection.dtype), self.projection)
        return tf.cast(product, hidden.dtype)


def frozen_weights(
    n_inputs: int, precision: str, kernel: Any, bias: Any, projection: Any
) -> CellWeights:
    """Arrange weights that never change.

    Args:
        n_inputs: number of rows of W_x.
        precision, kernel, bias, projection: see `LSTMCell`; `projection` may be None.
    """
    return_freed_memory()  # of the cell before this one
    layout = Layout.frozen(kernel, projection, precision != "float32")
    return CellWeights.of(layout, n_inputs, tf.as_dtype(precision), kernel, bias, projection)


def _times_all(x, matrix):
    """Multiply vectors of all steps: float (T, B, M) -> (T, B, N), as one product."""
    product = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), matrix)
    sizes = [x.shape[k] or tf.shape(x)[k] for k in range(2)]
    return tf.reshape(product, (*sizes, product.shape[1]))
