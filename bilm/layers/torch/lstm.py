"""Runs an `LSTM` over time on PyTorch.

In this module features come before rows, as in `tensorflow/lstm_training`: states are (D, B) and
(P, B), gates (4 D, B). The four gates are then contiguous, and a product of a few rows takes down
to half as long. Rows after the last one that is not padding are not computed.
"""

from functools import partial
from typing import NamedTuple

import torch

from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.types import Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import N_GATES


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in the dtype of the weight: (M, B), (N, M) -> (N, B) with the dtype of x."""
    return torch.mm(weight, x.to(weight.dtype)).to(x.dtype)


LIBRARY = Library(
    matmul=_product,
    sigmoid=torch.sigmoid,
    tanh=torch.tanh,
    clip=torch.clamp,
    where=torch.where,
    split=partial(torch.chunk, chunks=N_GATES, dim=0),
)


class Weights(NamedTuple):
    """The weights of a cell for this module; matrices have the dtype of products' inputs."""

    inputs: torch.Tensor  # 4 D, input
    recurrent: torch.Tensor  # 4 D, P
    bias: torch.Tensor  # 4 D, 1; b + u
    projection: torch.Tensor | None  # P, D


def weights_of(cell: WeightedLayer) -> Weights:
    """Return the weights of an `LSTMCell` in this layout, computed once if it is frozen."""
    if cell.laid_out is not None:
        return cell.laid_out
    kernel, bias, projection = map(_tensor, (cell.kernel, cell.bias, cell.projection))
    operands = torch.bfloat16 if cell.precision == "bfloat16" else kernel.dtype

    def transposed(weight):
        return weight.to(operands).t().contiguous()

    of_input = transposed(kernel[: cell.input_dim])
    recurrent = transposed(kernel[cell.input_dim :])
    units = torch.from_numpy(forget_bias(cell.dim)).to(bias)
    if projection is not None:
        projection = transposed(projection)
    weights = Weights(of_input, recurrent, (bias + units)[:, None], projection)
    if cell.frozen:
        cell.laid_out = weights
    return weights


def _tensor(variable: Tensor) -> Tensor:
    """Return the tensor of a Keras variable; tensors and None are returned unchanged."""
    return getattr(variable, "value", variable)


def run_over_time(
    cell: WeightedLayer,
    x: torch.Tensor,
    state: LSTMState,
    steps_mask: torch.Tensor | None,
    reverse: bool,
    fresh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, LSTMState]:
    """Run an `LSTMCell` over time: see `LSTM` for the shapes."""
    state = LSTMState(*map(_tensor, state))
    n_steps, n_rows = x.shape[:2]
    if n_steps == 0:
        return state.hidden.new_zeros((0, *state.hidden.shape)), state
    weights = weights_of(cell)
    keep = None if steps_mask is None else steps_mask.bool()[:, None]  # T, 1, B
    going_on = None if fresh is None else (~fresh.bool()).to(state.cell.dtype)[:, None]  # T, 1, B

    # One product for all steps, without rows of padding.
    sizes = [n_rows] * n_steps if keep is None else _rows_to_run(keep)
    rows = torch.cat([x[t, :n] for t, n in enumerate(sizes)])  # sum of sizes, input
    input_gates = _product(rows.t(), weights.inputs) + weights.bias  # 4 D, sum of sizes
    inputs = input_gates.split(sizes, dim=1)

    old = LSTMState(*(values.t() for values in state))  # D, B and P, B
    outputs: list[torch.Tensor] = [old.hidden] * n_steps
    for t in reversed(range(n_steps)) if reverse else range(n_steps):
        if going_on is not None:
            old = LSTMState(*(values * going_on[t] for values in old))

        n = sizes[t]
        first = LSTMState(*(values[:, :n] for values in old))
        gates = inputs[t] + _product(first.hidden, weights.recurrent)
        kept = None if keep is None else keep[t, :, :n]
        new = next_state(LIBRARY, gates, first, weights.projection, cell.clips, kept).state

        if n < n_rows:
            pairs = zip(new, old, strict=True)
            new = LSTMState(*(torch.cat([a, b[:, n:]], dim=1) for a, b in pairs))
        outputs[t] = new.hidden
        old = new
    last = LSTMState(*(values.t().contiguous() for values in old))
    return torch.stack(outputs).transpose(1, 2).contiguous(), last


def _rows_to_run(keep: torch.Tensor) -> list[int]:
    """Return for each step the number of rows up to the last one that is not padding: boolean
    (T, 1, B) -> (T,). It decreases with time if the longest sentences are first."""
    if not keep.shape[2]:
        return [0] * len(keep)
    numbers = torch.arange(1, keep.shape[2] + 1, device=keep.device)
    return (keep[:, 0] * numbers).amax(dim=1).tolist()
