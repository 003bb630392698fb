"""Runs an `LSTM` over time on PyTorch.

The products of the inputs of all steps are one product. The columns of the weights are in the order
i, f, o, j, so that one call computes three gates, and contiguous, so that a product of a few rows
does not copy them. Rows after the last one that is not padding are not computed. Without gradients,
the weights are `Packed`, and the arithmetic of a step is in place.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from bilm.layers.state import LSTMState, TableRows

ROWS = 32  # for which oneDNN chooses the layout of a packed matrix
PACKED_FROM = 64  # tokens of a window for which packing saves more time than it takes


class Packed:
    """A matrix in the layout that oneDNN multiplies fastest, for inference on the CPU.

    Without it, oneDNN and MKL rearrange a large matrix in each product, which takes longer than the
    product if x has few rows.

    Args:
        weight: float (M, N).
    """

    def __init__(self, weight: torch.Tensor):
        self.dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous(), ROWS)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W: (B, M) -> (B, N), with the dtype of the weight."""
        run = torch.ops.mkldnn._linear_pointwise
        return run(x.contiguous(), self._weight, None, "none", [], "")


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this build of PyTorch and this processor multiply packed matrices."""
    x, weight = torch.ones((2, 16), dtype=dtype), torch.ones((16, 8), dtype=dtype)
    try:
        return bool(torch.equal(Packed(weight).product(x), x @ weight))
    except (AttributeError, RuntimeError, TypeError):
        # Operations without a stable interface: missing, or with other arguments.
        return False


class Weights(NamedTuple):
    """The weights of a cell for this module.

    Fields:
        inputs: (input, 4 D), of the dtype of matrix-multiplication inputs.
        recurrent: (P, 4 D), likewise.
        bias: (4 D,), with the 1 of the forget gate.
        projection: (D, P), likewise; None without projection.
    """

    inputs: torch.Tensor | Packed
    recurrent: torch.Tensor | Packed
    bias: torch.Tensor
    projection: torch.Tensor | Packed | None


def weights_of(cell: Any, n_tokens: int) -> Weights:
    """Return the weights of a cell in this layout; the weights of a frozen cell are computed once.

    Without gradients on the CPU they are `Packed`, if the cell is frozen or a window of `n_tokens`
    is worth the time that packing takes.
    """
    kernel, bias, projection = map(_tensor, (cell.kernel, cell.bias, cell.projection))
    operands = torch.bfloat16 if cell.precision == "bfloat16" else kernel.dtype
    is_packed = (
        not torch.is_grad_enabled()
        and kernel.device.type == "cpu"
        and (cell.frozen or n_tokens >= PACKED_FROM)
        and can_pack(operands)
    )
    if cell.frozen and cell.laid_out is not None and (is_packed or not _is_packed(cell.laid_out)):
        return cell.laid_out

    def ordered(columns: torch.Tensor) -> torch.Tensor:
        i, j, f, o = columns.chunk(4, dim=-1)
        return torch.cat([i, f, o, j], dim=-1)

    def stored(weight: torch.Tensor) -> torch.Tensor | Packed:
        return Packed(weight.to(operands)) if is_packed else weight.to(operands)

    kernel = ordered(kernel)
    units = torch.zeros(4, device=bias.device, dtype=bias.dtype)
    units[1] = 1.0
    bias = ordered(bias) + units.repeat_interleave(cell.dim)
    found = Weights(
        stored(kernel[: cell.input_dim]),
        stored(kernel[cell.input_dim :]),
        bias,
        None if projection is None else stored(projection),
    )
    if cell.frozen and (is_packed or cell.laid_out is None):
        cell.laid_out = found
    return found


def _is_packed(weights: Weights) -> bool:
    return isinstance(weights.recurrent, Packed)


def _tensor(variable: Any) -> Any:
    """Return the tensor of a Keras variable; tensors and None are returned unchanged."""
    return getattr(variable, "value", variable)


def run_over_time(
    cell: Any, x: Any, state: LSTMState, steps_mask: Any, reverse: bool, fresh: Any = None
) -> Any:
    """Run a cell over time: see `LSTM` for the shapes."""
    old_cell, old_hidden = map(_tensor, state)
    keep = None if steps_mask is None else steps_mask.bool()[:, :, None]
    n_steps = len(x.places if isinstance(x, TableRows) else x)
    sizes = _rows_to_run(keep) if keep is not None else [len(old_cell)] * n_steps
    weights = weights_of(cell, sum(sizes))
    if isinstance(x, TableRows):
        table = _gates(x.table, weights)
        places = x.places.long()
        gates_at = [table[places[t, :n]] for t, n in enumerate(sizes)]
    elif keep is None:
        gates_at = list(_gates(x, weights).unbind(0))
    else:
        steps = [x[t, :n] for t, n in enumerate(sizes)]
        gates_at = list(_gates(torch.cat(steps), weights).split(sizes)) if steps else []
    going_on = None if fresh is None else (~fresh.bool()).to(old_cell.dtype)[:, :, None]
    needs_gradient = torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad
        for tensor in (*weights, *gates_at[:1], old_cell, old_hidden)
    )
    step = _step if needs_gradient else _step_in_place
    proj_clip = cell.proj_clip if cell.has_projection else None
    outputs: list[Any] = [None] * n_steps
    for t in reversed(range(n_steps)) if reverse else range(n_steps):
        if going_on is not None:
            old_cell, old_hidden = old_cell * going_on[t], old_hidden * going_on[t]
        n = sizes[t]
        new_cell, hidden = step(
            gates_at[t], old_cell[:n], old_hidden[:n], weights, cell.cell_clip, proj_clip
        )
        if keep is not None:
            new_cell = torch.where(keep[t, :n], new_cell, old_cell[:n])
            hidden = torch.where(keep[t, :n], hidden, old_hidden[:n])
        if n < len(old_cell):
            new_cell = torch.cat([new_cell, old_cell[n:]])
            hidden = torch.cat([hidden, old_hidden[n:]])
        outputs[t] = hidden
        old_cell, old_hidden = new_cell, hidden
    series = torch.stack(outputs) if outputs else old_hidden.new_zeros((0, *old_hidden.shape))
    return series, LSTMState(old_cell, old_hidden)


def _rows_to_run(keep: torch.Tensor) -> list[int]:
    """Return for each step the number of rows up to the last one that is not padding: boolean
    (T, B, 1) -> (T,). It decreases with time if the longest sentences are first."""
    numbers = torch.arange(1, keep.shape[1] + 1, device=keep.device)
    ends = keep[..., 0] * numbers
    return ends.amax(dim=1).tolist() if keep.shape[1] else [0] * len(keep)


def _gates(x: Any, weights: Weights) -> torch.Tensor:
    """Return x W_x + b for all positions: float (..., input) -> (..., 4 D)."""
    flat = x.reshape(-1, x.shape[-1])
    if isinstance(weights.inputs, torch.Tensor) and weights.inputs.dtype == flat.dtype:
        gates = torch.addmm(weights.bias, flat, weights.inputs)
    else:
        gates = _product(flat, weights.inputs) + weights.bias
    return gates.reshape(*x.shape[:-1], gates.shape[-1])


def _product(x: torch.Tensor, weight: torch.Tensor | Packed) -> torch.Tensor:
    """Multiply in the dtype of the weight: (B, M), (M, N) -> (B, N) with the dtype of x."""
    if isinstance(weight, Packed):
        return weight.product(x.to(weight.dtype)).to(x.dtype)
    return torch.mm(x.to(weight.dtype), weight).to(x.dtype)


def _step(
    gates: torch.Tensor,
    old_cell: torch.Tensor,
    old_hidden: torch.Tensor,
    weights: Weights,
    cell_clip: float | None,
    proj_clip: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one step: gates (B, 4 D) without their recurrent part, states -> states."""
    gates = gates + _product(old_hidden, weights.recurrent)
    n_units = old_cell.shape[1]
    i, f, o = torch.sigmoid(gates[:, : 3 * n_units]).chunk(3, dim=1)
    cell = f * old_cell + i * torch.tanh(gates[:, 3 * n_units :])
    if cell_clip:
        cell = cell.clamp(-cell_clip, cell_clip)
    hidden = o * torch.tanh(cell)
    if weights.projection is not None:
        hidden = _product(hidden, weights.projection)
        if proj_clip:
            hidden = hidden.clamp(-proj_clip, proj_clip)
    return cell, hidden


def _step_in_place(
    gates: torch.Tensor,
    old_cell: torch.Tensor,
    old_hidden: torch.Tensor,
    weights: Weights,
    cell_clip: float | None,
    proj_clip: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run `_step` without gradients, which keeps fewer intermediate results."""
    if isinstance(weights.recurrent, torch.Tensor) and weights.recurrent.dtype == gates.dtype:
        gates = torch.addmm(gates, old_hidden, weights.recurrent)
    else:
        gates = _product(old_hidden, weights.recurrent).add_(gates)
    n_units = old_cell.shape[1]
    i, f, o = gates[:, : 3 * n_units].sigmoid_().chunk(3, dim=1)
    candidate = gates[:, 3 * n_units :].tanh_()
    cell = torch.addcmul(f * old_cell, i, candidate)
    if cell_clip:
        cell.clamp_(-cell_clip, cell_clip)
    hidden = torch.tanh(cell).mul_(o)
    if weights.projection is not None:
        hidden = _product(hidden, weights.projection)
        if proj_clip:
            hidden.clamp_(-proj_clip, proj_clip)
    return cell, hidden
