"""`LSTM` over time on TensorFlow: with what a gradient needs, or without."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.layers.tensorflow.lstm_inference import run_without_gradient
from bilm.layers.tensorflow.lstm_loop import Spec
from bilm.layers.tensorflow.lstm_training import run_with_gradient
from bilm.layers.tensorflow.lstm_weights import CellWeights, Layout


def run_over_time(
    cell: Any, x: Any, state: Any, steps_mask: Any, reverse: Any, training: Any, fresh: Any = None
) -> Any:
    """Run a cell over time: see `LSTM` for shapes; `training` keeps what the gradient needs."""
    # Numbers, since oneDNN does not slice booleans everywhere, and says so; no int32, which
    # TensorFlow slices and compares on the host alone, wherever they are.
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
    weights = cell.kernel, cell.bias, cell.projection
    if training:
        weights = [tf.convert_to_tensor(w) for w in weights if w is not None]
        return run_with_gradient(x, state, weights, spec)
    layout = Layout.per_call(cell.kernel.shape[0])
    weights = CellWeights.of(layout, cell.input_dim, spec.operands, *weights)
    return run_without_gradient(x, state, weights, spec)
