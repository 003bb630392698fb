"""Layouts of the weights of an LSTM cell for inference, and the gates computed with each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.layers.lstm_equation import GATES, Gates, Library, activated, forget_bias
from bilm.layers.tensorflow.lstm_loop import MAX_JOINT, size_of
from bilm.support.process import return_freed_memory


class Layout(NamedTuple):
    """How W and b are arranged in memory. Every layout yields the same gates, [x, h] W + b. It may
    differ in four ways from the stored rows, W = [W_x; W_h], and columns, W = [W_i, W_j, W_f, W_o].

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

    def arranged(self, weight: tf.Tensor, rows: slice | None = None) -> list[tf.Tensor]:
        """Return W or b, or some rows of W, in this layout: (..., 4 D) -> one per gate, or all."""
        if not self.apart:
            return [weight if rows is None else weight[rows]]
        gates = []
        width = weight.shape[-1] // len(GATES)
        no_padding = [[0, 0]] * (len(weight.shape) - 1)
        # One gate at a time: LSTM weights are most of a model, so copies determine peak memory.
        for k, name in enumerate(GATES):
            columns = slice(k * width, (k + 1) * width)
            gate = weight[..., columns] if rows is None else weight[rows, columns]
            if self.forgetting and name == "f":
                gate = -gate
            gates.append(tf.pad(gate, [*no_padding, [0, self.n_spare]]))
        return gates


class CellWeights(NamedTuple):
    """The weights of a cell in a layout, in the dtype of matrix-multiplication inputs.

    Fields:
        layout: the layout of the other fields.
        of_input: W_x, one matrix per gate or one for all gates; empty if `layout.joint`.
        recurrent: W_h, or W if `layout.joint`, likewise.
        biases: b + u, likewise.
        projection: W_p, or None.
    """

    layout: Layout
    of_input: list[tf.Tensor]
    recurrent: list[tf.Tensor]
    biases: list[tf.Tensor]
    projection: tf.Tensor | None

    @classmethod
    def of(cls, cell: Any, layout: Layout, dtype: tf.DType) -> CellWeights:
        """Arrange the stored weights of an `LSTMCell`; `dtype`: of matrix-multiplication inputs."""
        kernel = tf.cast(cell.kernel, dtype)
        if layout.joint:
            of_input, recurrent = [], layout.arranged(kernel)
        else:
            of_input = layout.arranged(kernel, slice(cell.input_dim))
            recurrent = layout.arranged(kernel, slice(cell.input_dim, None))

        bias = tf.convert_to_tensor(cell.bias)
        biases = layout.arranged(tf.cast(bias + forget_bias(cell.dim), dtype))

        projection = cell.projection
        if projection is not None:
            projection = tf.pad(tf.cast(projection, dtype), [[0, layout.n_spare], [0, 0]])
        return cls(layout, of_input, recurrent, biases, projection)

    def arrays(self, n_units: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray | None]:
        """Return W and b by gate, and W_p, of frozen, joint float32 weights, for the `n_units`
        units that are not spare."""
        gates = [np.asarray(gate)[:, :n_units] for gate in self.recurrent]
        biases = [np.asarray(bias)[:n_units] for bias in self.biases]
        projection = None if self.projection is None else np.asarray(self.projection)[:n_units]
        return gates, biases, projection

    def library(self, dtype: tf.DType) -> Library:
        """Return the functions of `lstm_equation` for this layout: their results have a dtype."""

        def split(gates):
            if self.layout.apart:
                return gates
            return tf.split(tf.cast(gates[0], dtype), 4, axis=1)

        return Library(
            matmul=lambda x, weight: tf.cast(tf.matmul(tf.cast(x, weight.dtype), weight), dtype),
            sigmoid=lambda x: tf.cast(tf.sigmoid(x), dtype),
            tanh=lambda x: tf.cast(tf.tanh(x), dtype),
            clip=tf.clip_by_value,
            where=tf.where,
            split=split,
        )

    def gates(self, x: tf.Tensor) -> Callable[[int | tf.Tensor, tf.Tensor], Gates]:
        """Return a function from a step of x, float (T, B, input), and a hidden state (B, P) to
        `Gates` of the dtype of x, each (B, D), D with spare units."""
        dtype = self.biases[0].dtype
        operands = tf.cast(x, dtype)
        library = self.library(x.dtype)
        # One product for all steps, kept in the dtype of its inputs.
        of_input = [_times_all(operands, matrix) for matrix in self.of_input]  # T, B, 4 D or D

        def gates_at(t, hidden):
            read = tf.cast(hidden, dtype)
            if self.layout.joint:
                read = tf.concat([operands[t], read], axis=1)
            gates = []
            for k, matrix in enumerate(self.recurrent):
                # TensorFlow fuses tf.nn.bias_add with the product.
                gate = tf.nn.bias_add(tf.matmul(read, matrix), self.biases[k])
                if of_input:
                    gate = tf.cast(gate + of_input[k][t], x.dtype)
                gates.append(gate)

            opened = activated(library, gates)
            if self.layout.forgetting:
                opened = opened._replace(f=1.0 - opened.f)
            return opened

        return gates_at


def frozen_weights(cell: Any) -> CellWeights:
    """Arrange the weights of an `LSTMCell`, which never change, in the fastest layout."""
    return_freed_memory()  # of the cell before this one
    n_rows, n_columns = cell.kernel.shape
    is_rounded = cell.precision == "bfloat16"
    is_joint = n_rows <= MAX_JOINT
    # Rows of 2^k float32 values conflict in the processor's cache, which costs up to a fifth of the
    # time of a matrix multiplication. Without a projection, spare units would also lengthen the
    # output.
    n_spare = 0 if cell.projection is None or is_rounded else n_columns // 256
    layout = Layout(is_joint, apart=True, forgetting=is_rounded and is_joint, n_spare=n_spare)
    return CellWeights.of(cell, layout, tf.as_dtype(cell.precision))


def _times_all(x, matrix):
    """Multiply vectors of all steps: float (T, B, M) -> (T, B, N), as one product."""
    product = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), matrix)  # T B, N
    return tf.reshape(product, (size_of(x, 0), size_of(x, 1), product.shape[1]))
