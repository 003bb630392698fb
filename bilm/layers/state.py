"""What an LSTM layer carries from step to step, and input of few distinct vectors."""

from __future__ import annotations

from typing import Any, NamedTuple


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: object
    hidden: object


class TableRows(NamedTuple):
    """Input of a sequence layer that is rows of a table: the products of each row are made once.

    Where there are far fewer rows than positions, as the 20 amino acids of proteins, this spares
    a fifth of the work of two layers. Not for training.

    Fields:
        table: float (U, input), the distinct vectors.
        places: integer (T, B), which row stands where.
    """

    table: Any
    places: Any
