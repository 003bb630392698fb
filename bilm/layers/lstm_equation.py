"""The equation of one step of an LSTM cell, once for all libraries that compute it.

i, j, f, o = [x, h] W + b + u       input gate, candidate, forget gate, output gate
c' = clip(sigmoid(f) c + sigmoid(i) tanh(j), cell_clip)
h' = clip((sigmoid(o) tanh(c')) W_p, proj_clip)

u is 1 for the forget gate and 0 for the others. `activated` and `next_state` compute everything but
the product [x, h] W, whose fastest form differs: `lstm` (Keras), `tensorflow/lstm_weights`,
`tensorflow/lstm_training`, `torch/lstm` and `int8_graphs` (ONNX) compute it and use this module.

Two implementations write the equation a second time, because that was measured to be faster:
`inference/numpy_lstm`, in place and with one tanh for all gates, which takes two thirds of the time
for one sentence, and the gradient of `tensorflow/lstm_training`, which halves the time of training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bilm.layers.types import Tensor

GATES = "ijfo"  # the order in which W and b store the gates


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: Tensor
    hidden: Tensor


class Library(NamedTuple):
    """The functions of a library that the equation uses; its tensors must support `+` and `*`. Rows
    or features may be first, and gates may be one tensor or four."""

    matmul: Callable[[Tensor, Tensor], Tensor]  # x, weight
    sigmoid: Callable[[Tensor], Tensor]
    tanh: Callable[[Tensor], Tensor]
    clip: Callable[[Tensor, float, float], Tensor]  # x, lower bound, upper bound
    where: Callable[[Tensor, Tensor, Tensor], Tensor]  # condition, x where it holds, y elsewhere
    split: Callable[[Tensor], Sequence[Tensor]]  # gates -> i, j, f, o


class Gates(NamedTuple):
    """The gates of a step after their activation, float (B, D) each."""

    i: Tensor
    j: Tensor
    f: Tensor
    o: Tensor


class Step(NamedTuple):
    """The next state, and values that a gradient reads, float (B, D) each."""

    state: LSTMState
    tanh_cell: Tensor  # tanh(c')
    unprojected: Tensor  # sigmoid(o) tanh(c')


def forget_bias(n_units: int) -> np.ndarray:
    """Return u, float32 (4 D,), which the stored b does not contain."""
    return np.repeat(np.float32([gate == "f" for gate in GATES]), n_units)


def activated(library: Library, gates: Tensor) -> Gates:
    """Return the gates after their activation from [x, h] W + b + u."""
    i, j, f, o = library.split(gates)
    return Gates(library.sigmoid(i), library.tanh(j), library.sigmoid(f), library.sigmoid(o))


def next_state(
    library: Library,
    gates: Gates,
    old: LSTMState,
    projection: Tensor | None,
    cell_clip: float | None,
    proj_clip: float | None,
    keep: Tensor | None = None,
) -> Step:
    """Return the state after a step, from the result of `activated` and the state before.

    `projection` is W_p or None. `keep` is the condition for `library.where` that holds for the rows
    with a token; other rows keep their state.
    """
    cell = gates.f * old.cell + gates.i * gates.j  # B, D
    if cell_clip:
        cell = library.clip(cell, -cell_clip, cell_clip)

    tanh_cell = library.tanh(cell)
    unprojected = gates.o * tanh_cell
    hidden = unprojected
    if projection is not None:
        hidden = library.matmul(unprojected, projection)  # B, P
        if proj_clip:
            hidden = library.clip(hidden, -proj_clip, proj_clip)

    if keep is not None:
        cell = library.where(keep, cell, old.cell)
        hidden = library.where(keep, hidden, old.hidden)
    return Step(LSTMState(cell, hidden), tanh_cell, unprojected)
