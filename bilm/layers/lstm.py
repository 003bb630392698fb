"""LSTM with projection and clips: the cell, which computes one step, and its run over time."""

from functools import partial
from typing import Any

import keras
from keras import ops

from bilm.layers.functional import product
from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.types import Shape, Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.support.process import return_freed_memory
from bilm.tensors import N_GATES, cell


class LSTMCell(WeightedLayer):
    """One step of an LSTM with a projection of its output: see `bilm.layers.lstm_equation`.

    Args:
        dim: number of LSTM units D.
        projection_dim: width P of the output; if it equals `dim`, there is no projection.
        cell_clip, proj_clip: bounds on the absolute values of the cell, before the output gate, and
            of the projected output; None for no bound.
        precision: see `WeightedLayer`. States, clips and sums over steps stay in float32. With
            "bfloat16", inference on TensorFlow also rounds the bias and may round a gate.

    Inputs: x float `(B, input)`, `LSTMState`. Returns: the next `LSTMState`.
    Reference: Sak et al. 2014, arXiv:1402.1128.
    """

    def __init__(
        self,
        dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dim = dim
        self.projection_dim = projection_dim
        self.clips = cell_clip, proj_clip
        self.laid_out: Any = None  # weights in the layout of inference, if frozen

    def build(self, input_shape: Shape) -> None:
        """Create the variables; only the last axis of the input shape is needed."""
        self.input_dim = input_shape[-1]
        kernel, bias, *projection = cell(self.input_dim, self.dim, self.projection_dim)
        self.kernel = self.add_operand(kernel, "glorot_uniform")
        self.bias = self.add_tensor(bias, "zeros")
        self.projection = None
        if projection:
            self.projection = self.add_operand(projection[0], "glorot_uniform")
        if self.frozen and keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.lstm import cell_weights

            return_freed_memory()  # of the cell before this one
            self.laid_out = cell_weights(self, self.precision)
            self.kernel = None  # is in `laid_out` only
            self.projection = None
        self.built = True

    def call(self, x: Tensor, state: LSTMState) -> LSTMState:
        return self.step(self.project_input(x), state)

    def project_input(self, x: Tensor) -> Tensor:
        """Return x W_x + b + u, the input part of the gates: float (..., input) -> (..., 4 D)."""
        of_input = product(x, self.kernel[: self.input_dim], self.precision)
        return of_input + ops.add(self.bias, forget_bias(self.dim))

    def step(self, input_gates: Tensor, state: LSTMState, keep: Tensor | None = None) -> LSTMState:
        """Run one step from the result of `project_input`; `keep`: see `next_state`."""
        library = Library(
            matmul=partial(product, precision=self.precision),
            sigmoid=ops.sigmoid,
            tanh=ops.tanh,
            clip=ops.clip,
            where=ops.where,
            split=partial(ops.split, indices_or_sections=N_GATES, axis=-1),
        )
        of_hidden = library.matmul(state.hidden, self.kernel[self.input_dim :])  # B, 4 D
        gates = input_gates + of_hidden
        return next_state(library, gates, state, self.projection, self.clips, keep).state


class LSTM(keras.layers.Layer):
    """An `LSTMCell` run over time; the state is an argument and a result.

    `tensorflow/lstm` and `torch/lstm` run it faster; other backends scan the cell. On TensorFlow,
    only this layer runs a frozen cell.

    Inputs: x float `(T, B, input)`, time first; an `LSTMState`; `steps_mask` boolean `(T, B)` or
    None; `reverse`, whether to run from the last step to the first; `fresh` boolean `(T, B)` or
    None, the steps at which a row starts from zero state (not in training).
    Returns: outputs float `(T, B, P)` and the last `LSTMState`.
    Masking: a step outside the mask keeps the state, so both directions skip padding.
    """

    def __init__(self, cell: LSTMCell, **kwargs: Any):
        super().__init__(dtype=cell.dtype_policy, **kwargs)
        self.cell = cell

    def build(self, input_shape: Shape) -> None:
        self.cell.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        state: LSTMState,
        steps_mask: Tensor | None = None,
        reverse: bool = False,
        training: bool | None = None,
        fresh: Tensor | None = None,
    ) -> tuple[Tensor, LSTMState]:
        if keras.backend.backend() == "tensorflow":
            from bilm.layers.tensorflow.lstm import run_over_time

            return run_over_time(self.cell, x, state, steps_mask, reverse, training, fresh)
        if keras.backend.backend() == "torch":
            from bilm.layers.torch import lstm

            return lstm.run_over_time(self.cell, x, state, steps_mask, reverse, fresh)
        return scan_cell(self.cell, x, state, steps_mask, reverse, fresh)


def scan_cell(
    cell: LSTMCell,
    x: Tensor,
    state: LSTMState,
    steps_mask: Tensor | None,
    reverse: bool,
    fresh: Tensor | None = None,
) -> tuple[Tensor, LSTMState]:
    """Run a cell over time on any backend: see `LSTM`."""
    input_gates = cell.project_input(x)  # T, B, 4 D: one product for all steps
    shape = ops.shape(input_gates)[:2]
    if steps_mask is None:
        steps_mask = ops.ones(shape, dtype="bool")
    if fresh is None:
        fresh = ops.zeros(shape, dtype="bool")

    def step(carry, inputs):
        gates, keep, is_fresh = inputs
        old = LSTMState(*(ops.where(is_fresh[:, None], 0.0, values) for values in carry))
        new = tuple(cell.step(gates, old, keep[:, None]))
        return new, new

    inputs = (input_gates, steps_mask, fresh)
    if reverse:
        inputs = tuple(ops.flip(series, 0) for series in inputs)
    last, (_, outputs) = ops.scan(step, tuple(state), inputs)
    if reverse:
        outputs = ops.flip(outputs, 0)
    return outputs, LSTMState(*last)
