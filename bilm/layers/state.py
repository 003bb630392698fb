"""The state of an LSTM layer."""

from __future__ import annotations

from typing import NamedTuple

from bilm.layers.types import Tensor


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: Tensor
    hidden: Tensor
