"""The equation of one step of an LSTM cell, once for all libraries that compute it.

i, j, f, o = [x, h] W + b + u       input gate, candidate, forget gate, output gate
c' = clip(sigmoid(f) c + sigmoid(i) tanh(j), cell_clip)
h' = clip((sigmoid(o) tanh(c')) W_p, proj_clip)

u is 1 for the forget gate and 0 for the others. `next_state` computes everything but the product
[x, h] W, whose fastest form differs: `lstm` (Keras), `tensorflow/lstm`, `tensorflow/lstm_training`,
`torch/lstm` and `inference/onnx_int8` compute it and use this module.

Two implementations write the equation a second time, because that was measured to be faster:
`inference/numpy`, in place and with one tanh for all gates, which takes two thirds of the time
for one sentence, and the gradient of `tensorflow/lstm_training`, which halves the time of training.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bilm.layers.types import Tensor
from bilm.tensors import GATES


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: Tensor
    hidden: Tensor


class Library(NamedTuple):
    """The functions of a library that the equation uses; its tensors support arithmetic with each
    other and with numbers. Rows or features may be first, and gates may be one tensor or four."""

    matmul: Callable[[Tensor, Tensor], Tensor]  # x, weight
    sigmoid: Callable[[Tensor], Tensor]
    tanh: Callable[[Tensor], Tensor]
    clip: Callable[[Tensor, float, float], Tensor]  # x, lower bound, upper bound
    where: Callable[[Tensor, Tensor, Tensor], Tensor]  # condition, x where it holds, y elsewhere
    split: Callable[[Tensor], Sequence[Tensor]]  # gates -> i, j, f, o
    # Whether `split` returns -f. In bfloat16, sigmoid(f) = 0.998 would be rounded to 1, and the
    # cell would never forget; sigmoid(-f) = 1 - sigmoid(f) = 0.002 is kept.
    negates_f: bool = False


class Step(NamedTuple):
    """The next state, see `LSTMState`, and values that a gradient reads, float (B, D) each."""

    cell: Tensor
    hidden: Tensor
    i: Tensor  # of the gates after their activation
    j: Tensor
    f: Tensor
    o: Tensor
    tanh_cell: Tensor  # tanh(c')
    unprojected: Tensor  # sigmoid(o) tanh(c')

    @property
    def state(self) -> LSTMState:
        """The next state."""
        return LSTMState(self.cell, self.hidden)


def forget_bias(n_units: int) -> np.ndarray:
    """Return u, float32 (4 D,), which the stored b does not contain."""
    return np.repeat(np.float32([gate == "f" for gate in GATES]), n_units)


def next_state(
    library: Library,
    gates: Tensor,
    old: LSTMState,
    projection: Tensor | None,
    clips: tuple[float | None, float | None],
    keep: Tensor | None = None,
) -> Step:
    """Return a step from [x, h] W + b + u and the state before.

    `projection` is W_p or None; `clips` are `cell_clip` and `proj_clip`. `keep` is the condition
    for `library.where` that holds for the rows with a token; other rows keep their state.
    """
    i, j, f, o = library.split(gates)
    i = library.sigmoid(i)
    j = library.tanh(j)
    f = library.sigmoid(f)
    if library.negates_f:
        f = 1.0 - f
    o = library.sigmoid(o)

    cell_clip, proj_clip = clips
    cell = f * old.cell + i * j  # B, D
    if cell_clip:
        cell = library.clip(cell, -cell_clip, cell_clip)

    tanh_cell = library.tanh(cell)
    unprojected = o * tanh_cell
    hidden = unprojected
    if projection is not None:
        hidden = library.matmul(unprojected, projection)  # B, P
        if proj_clip:
            hidden = library.clip(hidden, -proj_clip, proj_clip)

    if keep is not None:
        cell = library.where(keep, cell, old.cell)
        hidden = library.where(keep, hidden, old.hidden)
    return Step(cell, hidden, i, j, f, o, tanh_cell, unprojected)
