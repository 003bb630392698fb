"""LSTM with projection and clips: the equation of one step, and the layer that runs it over time.

`LSTMCell` is the specification. `LSTM` computes the same numbers over a sequence: on TensorFlow
with `layers/tensorflow/lstm`, whose gradient is written by hand, on PyTorch with
`layers/torch/lstm`, elsewhere by scanning the cell.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bilm.layers.functional import product
from bilm.layers.int8_weights import Int8Cell, quantized
from bilm.layers.state import LSTMState
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import cell


class LSTMCell(WeightedLayer):
    """One step of an LSTM with a projection of its output.

    i, j, f, o = split([x, h] W + b)    input gate, candidate, forget gate, output gate
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j), cell_clip)
    h' = clip((sigmoid(o) tanh(c')) W_p, proj_clip)

    Args:
        dim: number of LSTM units D.
        projection_dim: width P of the output. If it equals `dim`, there is no projection and
            `proj_clip` is ignored.
        cell_clip: bound on the absolute values of the cell, applied before the output gate; None
            for no bound.
        proj_clip: bound on the absolute values of the projected output; None for no bound.
        precision: dtype of the matrix-multiplication inputs: "float32" or "bfloat16". States, clips
            and sums over steps stay in float32. With "bfloat16", inference on TensorFlow also
            rounds the bias and may round a gate. "int8": see `BiLM`.

    Inputs: x float `(B, input)`, `LSTMState`. Returns: the next `LSTMState`; its `hidden` is the
    output.
    Stored as `.../LSTMCell/W_0` (W: input + P, 4 D; the rows of the input above those of h),
    `.../LSTMCell/B` (b: 4 D, without the 1 of the forget gate), `.../LSTMCell/W_P_0` (W_p: D, P).
    Reference: Sak et al. 2014, arXiv:1402.1128.
    """

    def __init__(
        self,
        dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        precision: str = "float32",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dim = dim
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        self.precision = precision
        self.has_projection = projection_dim != dim
        self.laid_out: Any = None  # weights in the layout of inference, if frozen

    def build(self, input_shape: Any) -> None:
        """Create the kernel, the bias and, if the widths differ, the projection."""
        self.input_dim = input_shape[-1]
        specs = cell(self.input_dim, self.dim, self.projection_dim)
        kernel = self.add_tensor(specs[0], "glorot_uniform")
        bias = self.add_tensor(specs[1], "zeros")
        projection = None
        if self.has_projection:
            projection = self.add_tensor(specs[2], "glorot_uniform")
        if self.precision == "int8":
            projection = None if projection is None else quantized(projection)
            self.laid_out = Int8Cell(quantized(kernel), ops.convert_to_numpy(bias), projection)
        elif self.frozen and keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.lstm_weights import frozen_weights

            weights = kernel, bias, projection
            self.laid_out = frozen_weights(self.input_dim, self.precision, *weights)
        else:
            self.kernel, self.bias, self.projection = kernel, bias, projection
        self.built = True

    def call(self, x: Any, state: LSTMState) -> LSTMState:
        """Run one step: float (B, input) and state -> state."""
        return self.step(self.project_input(x), state)

    def project_input(self, x: Any) -> Any:
        """Return x W_x + b, the input part of the gates: float (..., input) -> (..., 4 D)."""
        return product(x, self.kernel[: self.input_dim], self.precision) + self.bias

    def step(self, input_gates: Any, state: LSTMState) -> LSTMState:
        """Run one step from x W_x + b, float (B, 4 D)."""
        recurrent = self.kernel[self.input_dim :]
        gates = input_gates + product(state.hidden, recurrent, self.precision)
        i, j, f, o = ops.split(gates, 4, axis=-1)
        cell = ops.sigmoid(f + 1.0) * state.cell + ops.sigmoid(i) * ops.tanh(j)
        if self.cell_clip:
            cell = ops.clip(cell, -self.cell_clip, self.cell_clip)
        hidden = ops.sigmoid(o) * ops.tanh(cell)
        if self.projection is not None:
            hidden = product(hidden, self.projection, self.precision)
            if self.proj_clip:
                hidden = ops.clip(hidden, -self.proj_clip, self.proj_clip)
        return LSTMState(cell, hidden)


class LSTM(keras.layers.Layer):
    """An `LSTMCell` run over time; the state is an argument and a result.

    Args:
        cell: the `LSTMCell`. A frozen cell is not trained; on TensorFlow only this layer runs it.

    Inputs: x float `(T, B, input)`, time first; an `LSTMState`; `steps_mask` boolean `(T, B)` or
    None; `reverse`, whether to run from the last step to the first; `fresh` boolean `(T, B)` or
    None, the steps at which a row starts from zero state (not in training).
    Returns: outputs float `(T, B, P)` and the last `LSTMState`.
    Masking: a step outside the mask keeps the state, so both directions skip padding.
    """

    def __init__(self, cell: LSTMCell, **kwargs: Any):
        super().__init__(dtype=cell.dtype_policy, **kwargs)
        self.cell = cell

    def build(self, input_shape: Any) -> None:
        """Create the variables of the cell; only the last axis of the input shape is needed."""
        self.cell.build(input_shape)
        self.built = True

    def call(
        self,
        x: Any,
        state: Any,
        steps_mask: Any = None,
        reverse: bool = False,
        training: bool | None = None,
        fresh: Any = None,
    ) -> Any:
        """Run over time: float (T, B, input) and state -> float (T, B, P) and state."""
        if keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.lstm import run_over_time

            return run_over_time(self.cell, x, state, steps_mask, reverse, training, fresh)
        if keras.backend.backend() == "torch":
            from bilm.layers.torch import lstm

            return lstm.run_over_time(self.cell, x, state, steps_mask, reverse, fresh)
        return scan_cell(self.cell, x, state, steps_mask, reverse, fresh)


def scan_cell(
    cell: LSTMCell, x: Any, state: LSTMState, steps_mask: Any, reverse: bool, fresh: Any = None
) -> Any:
    """Run a cell over time on any backend: see `LSTM` for the shapes."""
    input_gates = cell.project_input(x)  # T, B, 4 D: one product for all steps
    shape = ops.shape(input_gates)[:2]
    if steps_mask is None:
        steps_mask = ops.ones(shape, dtype="bool")
    if fresh is None:
        fresh = ops.zeros(shape, dtype="bool")

    def step(carry, inputs):
        gates, mask, first = inputs
        carry = tuple(ops.where(first[:, None], 0.0, old) for old in carry)
        new = cell.step(gates, LSTMState(*carry))
        new = tuple(ops.where(mask[:, None], n, old) for n, old in zip(new, carry, strict=True))
        return new, new

    inputs = (input_gates, steps_mask, fresh)
    if reverse:
        inputs = tuple(ops.flip(series, 0) for series in inputs)
    last, (_, outputs) = ops.scan(step, tuple(state), inputs)
    return ops.flip(outputs, 0) if reverse else outputs, LSTMState(*last)
