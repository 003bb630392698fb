"""Runs an `LSTM` over time on TensorFlow: selects the implementation, and contains the one for
inference."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.state import LSTMState
from bilm.layers.tensorflow.lstm_loop import MAX_JOINT, Spec, clipped, loop, next_cell
from bilm.layers.tensorflow.lstm_training import run_with_gradient
from bilm.layers.tensorflow.lstm_weights import CellWeights, Layout


def run_over_time(
    cell: Any, x: Any, state: Any, steps_mask: Any, reverse: Any, training: Any, fresh: Any = None
) -> Any:
    """Run a cell over time: see `LSTM` for the shapes; with `training`, intermediate results
    are stored for the gradient."""
    # Masks are converted to float, because oneDNN logs a message when it cannot slice booleans, and
    # TensorFlow slices int32 on the host.
    steps_mask, fresh = (None if m is None else tf.where(m, 1.0, 0.0) for m in (steps_mask, fresh))
    spec = Spec(
        cell.cell_clip,
        cell.proj_clip if cell.has_projection else None,
        tf.as_dtype(cell.precision) if cell.precision != "float32" else state[0].dtype,
        steps_mask,
        reverse,
        fresh,
    )
    if not training and cell.frozen:
        return run_without_gradient(x, state, cell.laid_out, spec)
    stored = cell.kernel, cell.bias, cell.projection
    if training:
        tensors = [tf.convert_to_tensor(w) for w in stored if w is not None]
        return run_with_gradient(x, state, tensors, spec)
    # The weights may change, so each call rearranges them. Splitting W by gates would take longer
    # than running one or two sentences.
    layout = Layout(joint=cell.kernel.shape[0] <= MAX_JOINT)
    weights = CellWeights.of(layout, cell.input_dim, spec.operands, *stored)
    return run_without_gradient(x, state, weights, spec)


def run_without_gradient(x: Any, state: LSTMState, weights: CellWeights, spec: Spec) -> tuple:
    """Run over time: x (T, B, input) -> outputs (T, B, P) and the last state."""
    gates_at = weights.gates(x)
    dtype, n_steps = state.cell.dtype, x.shape[0] or tf.shape(x)[0]
    # Multiplying by 0 or 1 is several times as fast as tf.where, and is equivalent because states
    # are finite.
    going_on = None if spec.fresh is None else tf.cast(1 - spec.fresh, dtype)[:, :, None]

    def body(k, carry):
        t = n_steps - 1 - k if spec.reverse else k
        old_cell, old_hidden = carry
        if going_on is not None:
            old_cell, old_hidden = (old * going_on[t] for old in carry)
        i, j, f, o = gates_at(t, old_hidden)
        cell = next_cell(i, j, f, old_cell, spec.cell_clip)
        hidden = o * tf.tanh(cell)
        hidden = clipped(weights.project(hidden), spec.proj_clip)
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
        # The outputs are reversed after the loop, because ONNX collects them in the order of the
        # iterations.
        outputs = tf.reverse(outputs, [0])
    return outputs, LSTMState(last[0][:, :n_units], last[1])
