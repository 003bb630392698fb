"""The settings of regularization in training, and the seeds of its masks."""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Regularization:
    """Settings of regularization, with the names of the keys of `options.json`; `weight_decay`
    belongs to the optimizer.

    Args:
        dropout: rate on the input of each LSTM layer and on the last output.
        variational_dropout: whether a row has the same mask of `dropout` at all steps of a window
            (Gal and Ghahramani 2016, arXiv:1512.05287) instead of one mask per step.
        embedding_dropout: probability of replacing the vector of a distinct token of a replica's
            window by zeros, at all of its positions and in both directions.
    """

    dropout: float = 0.0
    variational_dropout: bool = False
    embedding_dropout: float = 0.0


class DropoutSeeds(NamedTuple):
    """Seeds of a replica's masks in a step: integers (2,); None without the setting."""

    layers: Any = None  # a seed for each direction, of `dropout`
    tokens: Any = None  # of `embedding_dropout`
