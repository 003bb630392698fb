"""Runs an `LSTM` over time on PyTorch.

The products of the inputs of all steps are one product. The columns of the weights are in the order
i, f, o, j, so that one call computes three gates, and contiguous, so that a product of a few rows
does not copy them. Rows after the last one that is not padding are not computed. Without gradients,
large products read `Packed` weights: `original` is then twice as fast.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from bilm.layers.state import LSTMState

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

    On the CPU they are `Packed` if the cell is frozen, or if no gradient is computed and a window
    of `n_tokens` is worth the time that packing takes.
    """
    if cell.laid_out is not None:
        return cell.laid_out
    kernel, bias, projection = map(_tensor, (cell.kernel, cell.bias, cell.projection))
    operands = torch.bfloat16 if cell.precision == "bfloat16" else kernel.dtype
    is_worth_packing = n_tokens >= PACKED_FROM and not torch.is_grad_enabled()
    on_cpu = kernel.device.type == "cpu"
    is_packed = on_cpu and (cell.frozen or is_worth_packing) and can_pack(operands)

    def ordered(columns: torch.Tensor) -> torch.Tensor:
        i, j, f, o = columns.chunk(4, dim=-1)
        return torch.cat([i, f, o, j], dim=-1)

    def stored(weight: torch.Tensor) -> torch.Tensor | Packed:
        return Packed(weight.to(operands)) if is_packed else weight.to(operands)

    kernel = ordered(kernel)
    units = torch.zeros(4, device=bias.device, dtype=bias.dtype)
    units[1] = 1.0
    found = Weights(
        stored(kernel[: cell.input_dim]),
        stored(kernel[cell.input_dim :]),
        ordered(bias) + units.repeat_interleave(cell.dim),
        None if projection is None else stored(projection),
    )
    if cell.frozen:
        cell.laid_out = found
    return found


def _tensor(variable: Any) -> Any:
    """Return the tensor of a Keras variable; tensors and None are returned unchanged."""
    return getattr(variable, "value", variable)


def run_over_time(
    cell: Any, x: Any, state: LSTMState, steps_mask: Any, reverse: bool, fresh: Any = None
) -> Any:
    """Run a cell over time: see `LSTM` for the shapes."""
    old_cell, old_hidden = map(_tensor, state)
    n_steps, n_rows = len(x), len(old_cell)
    keep = None if steps_mask is None else steps_mask.bool()[:, :, None]
    sizes = [n_rows] * n_steps if keep is None else _rows_to_run(keep)
    weights = weights_of(cell, sum(sizes))
    going_on = None if fresh is None else (~fresh.bool()).to(old_cell.dtype)[:, :, None]
    if n_steps == 0:
        return old_hidden.new_zeros((0, *old_hidden.shape)), LSTMState(old_cell, old_hidden)
    # One product for all steps, without rows of padding.
    rows = torch.cat([x[t, :n] for t, n in enumerate(sizes)])
    gates_at = (_product(rows, weights.inputs) + weights.bias).split(sizes)
    outputs: list[Any] = [None] * n_steps
    for t in reversed(range(n_steps)) if reverse else range(n_steps):
        if going_on is not None:
            old_cell, old_hidden = old_cell * going_on[t], old_hidden * going_on[t]
        n = sizes[t]
        new_cell, hidden = _step(cell, gates_at[t], old_cell[:n], old_hidden[:n], weights)
        if keep is not None:
            new_cell = torch.where(keep[t, :n], new_cell, old_cell[:n])
            hidden = torch.where(keep[t, :n], hidden, old_hidden[:n])
        if n < n_rows:
            new_cell = torch.cat([new_cell, old_cell[n:]])
            hidden = torch.cat([hidden, old_hidden[n:]])
        outputs[t] = hidden
        old_cell, old_hidden = new_cell, hidden
    return torch.stack(outputs), LSTMState(old_cell, old_hidden)


def _rows_to_run(keep: torch.Tensor) -> list[int]:
    """Return for each step the number of rows up to the last one that is not padding: boolean
    (T, B, 1) -> (T,). It decreases with time if the longest sentences are first."""
    numbers = torch.arange(1, keep.shape[1] + 1, device=keep.device)
    ends = keep[..., 0] * numbers
    return ends.amax(dim=1).tolist() if keep.shape[1] else [0] * len(keep)


def _step(
    cell: Any,
    gates: torch.Tensor,
    old_cell: torch.Tensor,
    old_hidden: torch.Tensor,
    weights: Weights,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one step: gates (B, 4 D) without their recurrent part, states -> states."""
    gates = gates + _product(old_hidden, weights.recurrent)
    i, f, o = torch.sigmoid(gates[:, : 3 * cell.dim]).chunk(3, dim=1)
    new = torch.addcmul(f * old_cell, i, torch.tanh(gates[:, 3 * cell.dim :]))
    if cell.cell_clip:
        new = new.clamp(-cell.cell_clip, cell.cell_clip)
    hidden = o * torch.tanh(new)
    if weights.projection is not None:
        hidden = _product(hidden, weights.projection)
        if cell.proj_clip:
            hidden = hidden.clamp(-cell.proj_clip, cell.proj_clip)
    return new, hidden


def _product(x: torch.Tensor, weight: torch.Tensor | Packed) -> torch.Tensor:
    """Multiply in the dtype of the weight: (B, M), (M, N) -> (B, N) with the dtype of x."""
    if isinstance(weight, Packed):
        return weight.product(x.to(weight.dtype)).to(x.dtype)
    return torch.mm(x.to(weight.dtype), weight).to(x.dtype)
