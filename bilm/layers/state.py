"""The state of an LSTM layer."""

from __future__ import annotations

from typing import Any, NamedTuple


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: Any
    hidden: Any
