"""Runs an `LSTM` over time on TensorFlow; contains the implementation for inference."""

import tensorflow as tf

from bilm.layers.lstm_equation import LSTMState, next_state
from bilm.layers.tensorflow.lstm_loop import loop, size_of
from bilm.layers.tensorflow.lstm_training import Spec, run_with_gradient
from bilm.layers.tensorflow.lstm_weights import stored_weights
from bilm.layers.weighted import WeightedLayer


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

    weights = cell.laid_out if cell.frozen else stored_weights(cell, operands)
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
