"""What an LSTM layer carries from step to step."""

from __future__ import annotations

from typing import NamedTuple


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: object
    hidden: object
