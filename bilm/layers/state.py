"""The state of an LSTM layer, and an input with few distinct vectors."""

from __future__ import annotations

from typing import Any, NamedTuple


class LSTMState(NamedTuple):
    """The state of one LSTM layer: `cell` float (B, D) and `hidden` float (B, P)."""

    cell: Any
    hidden: Any


class TableRows(NamedTuple):
    """An input whose vectors are rows of a table; each row is multiplied by the weights once.

    If there are far fewer rows than positions, such as 20 amino acids, this saves a fifth of the
    work of two layers. Not for training.

    Fields:
        table: float (U, input), the distinct vectors.
        places: integer (T, B), the row of the table at each position.
    """

    table: Any
    places: Any
