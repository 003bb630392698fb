"""Runs an `LSTM` over time on PyTorch, without the rows after the last one that is not padding."""

from functools import partial

import torch

from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.types import Tensor
from bilm.layers.weighted import WeightedLayer
from bilm.tensors import N_GATES


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply in the dtype of the weight: (B, M), (M, N) -> (B, N) with the dtype of x."""
    return torch.mm(x.to(weight.dtype), weight).to(x.dtype)


LIBRARY = Library(
    matmul=_product,
    sigmoid=torch.sigmoid,
    tanh=torch.tanh,
    clip=torch.clamp,
    where=torch.where,
    split=partial(torch.chunk, chunks=N_GATES, dim=1),
)


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
    old = LSTMState(*map(_tensor, state))
    n_steps, n_rows = x.shape[:2]
    if n_steps == 0:
        return old.hidden.new_zeros((0, *old.hidden.shape)), old
    kernel, bias, projection = map(_tensor, (cell.kernel, cell.bias, cell.projection))
    if cell.precision == "bfloat16":
        kernel = kernel.bfloat16()
        projection = None if projection is None else projection.bfloat16()
    input_kernel, recurrent = kernel[: cell.input_dim], kernel[cell.input_dim :]

    # One product for all steps, without rows of padding.
    sizes = [n_rows] * n_steps if steps_mask is None else _rows_to_run(steps_mask)
    rows = torch.cat([x[t, :n] for t, n in enumerate(sizes)])  # sum of sizes, input
    biases = bias + torch.from_numpy(forget_bias(cell.dim)).to(bias)
    inputs = (_product(rows, input_kernel) + biases).split(sizes)  # rows of the step, 4 D

    outputs: list[torch.Tensor] = [old.hidden] * n_steps
    for t in reversed(range(n_steps)) if reverse else range(n_steps):
        if fresh is not None:
            is_fresh = fresh[t, :, None]
            old = LSTMState(*(torch.where(is_fresh, 0.0, values) for values in old))

        n = sizes[t]
        first = LSTMState(old.cell[:n], old.hidden[:n])
        gates = inputs[t] + _product(first.hidden, recurrent)
        keep = None if steps_mask is None else steps_mask[t, :n, None]
        new = next_state(LIBRARY, gates, first, projection, cell.clips, keep).state

        if n < n_rows:
            cell_state = torch.cat([new.cell, old.cell[n:]])
            new = LSTMState(cell_state, torch.cat([new.hidden, old.hidden[n:]]))
        outputs[t] = new.hidden
        old = new
    return torch.stack(outputs), old


def _rows_to_run(steps_mask: torch.Tensor) -> list[int]:
    """Return for each step the number of rows up to the last one that is not padding: boolean
    (T, B) -> (T,). It decreases with time if the longest sentences are first."""
    if not steps_mask.shape[1]:
        return [0] * len(steps_mask)
    numbers = torch.arange(1, steps_mask.shape[1] + 1, device=steps_mask.device)
    return (steps_mask * numbers).amax(dim=1).tolist()
