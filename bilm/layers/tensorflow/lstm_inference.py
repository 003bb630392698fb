"""`LSTM` over time on TensorFlow without a gradient: rows side by side, as they come."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.state import LSTMState, TableRows
from bilm.layers.tensorflow.lstm_loop import Spec, clipped, loop, next_cell
from bilm.layers.tensorflow.lstm_weights import CellWeights
from bilm.layers.tensorflow.products import rows_times


def run_without_gradient(x: Any, state: LSTMState, weights: CellWeights, spec: Spec) -> tuple:
    """Run over time: x (T, B, input) or `TableRows` -> outputs (T, B, P) and the last state."""
    in_order = x  # T, B, ...
    if isinstance(x, TableRows):
        in_order = tf.cast(x.places, tf.int64)  # int32 is sliced on the host, wherever it is
        x = TableRows(x.table, in_order)
    gates_at = weights.gates(x)
    dtype, n_steps = state.cell.dtype, in_order.shape[0] or tf.shape(in_order)[0]
    # Multiplied, since to choose by a condition takes several times as long; states are finite.
    going_on = None if spec.fresh is None else tf.cast(1 - spec.fresh, dtype)[:, :, None]

    def body(k, carry):
        t = n_steps - 1 - k if spec.reverse else k
        old_cell, old_hidden = carry
        if going_on is not None:
            old_cell, old_hidden = (old * going_on[t] for old in carry)
        i, j, f, o = gates_at(t, old_hidden)
        cell = next_cell(i, j, f, old_cell, spec.cell_clip)
        hidden = o * tf.tanh(cell)
        if weights.projection:
            hidden = clipped(rows_times(hidden, weights.projection[0]), spec.proj_clip)
        if spec.steps_mask is not None:
            keep = spec.steps_mask[t][:, None] > 0
            cell, hidden = tf.where(keep, cell, old_cell), tf.where(keep, hidden, old_hidden)
        return (cell, hidden), (hidden,)

    n_units, n_spare = state.cell.shape[1], weights.layout.n_spare
    start = tf.pad(state.cell, [[0, 0], [0, n_spare]]), state.hidden
    shapes = (state.hidden.shape,)
    last, (outputs,) = loop(body, start, n_steps, False, shapes, dtype)
    outputs = tf.stack(outputs) if isinstance(outputs, list) else outputs
    if spec.reverse:
        # Afterwards, since in ONNX the outputs of a loop stand in the order in which it makes them.
        outputs = tf.reverse(outputs, [0])
    return outputs, LSTMState(last[0][:, :n_units], last[1])
