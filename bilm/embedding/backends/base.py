"""The interface of the backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel

# Places and starts of a window -> layers by direction: see `Backend.begin`.
Run = Callable[[dict[str, np.ndarray], np.ndarray], dict[str, Any]]


class Backend(ABC):
    """A stored biLM for inference, computed by one library.

    Attributes: `options`, of the model; `n_tokens`, the number of words that it reads, or None for
        characters; `runs_ahead`, whether windows may be computed in a thread while the caller
        processes the last one.
    """

    runs_ahead = False

    def __init__(self, options: ModelOptions, n_tokens: int | None = None):
        self.options, self.n_tokens = options, n_tokens

    @classmethod
    @abstractmethod
    def open(cls, stored: StoredModel, precision: str) -> Backend:
        """Load a model that is supported. Raises: WeightsError; ValueError for the precision."""

    @classmethod
    def unsupported(cls, options: ModelOptions, precision: str) -> str | None:
        """Return why this backend does not compute such a model, or None if it does."""
        return None

    @abstractmethod
    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens, float32 (U, P).

        Args:
            ids: shifted ids, integer (U, C), C at least the width of the widest filter; (U,) for a
                model that reads words.
            n_rows: a library that compiles code for each shape may pad the ids to so many rows.
        """

    @abstractmethod
    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs the stacks of all directions over one window after another,
        starting from zero state.

        Args:
            table: token vectors, float32 (U, P).
            n_rows: B.
        Returns: a function of `places`, for each direction, in its reading order, rows of the
            table, int32 (B, T), and `fresh`, boolean (B, T), the steps at which a row starts from
            zero state. It returns for each direction the token vectors and the outputs of all
            layers, (layers + 1, B, T, P), which `np.asarray` converts.
        """


def zero_state(options: ModelOptions, n_rows: int) -> list[np.ndarray]:
    """Return the zero state: by direction, layer, cell before hidden, float32 (B, ...)."""
    lstm = options.lstm
    widths = (lstm.dim, lstm.projection_dim) * (len(options.directions) * lstm.n_layers)
    return [np.zeros((n_rows, width), np.float32) for width in widths]


def continued(run: Callable[..., tuple[dict[str, Any], Any]], table: Any, state: Sequence) -> Run:
    """Return the function that runs a window from the state at the end of the window before it;
    `run` maps a table, places, starts and a state to layers and the last state."""

    def run_window(places: dict[str, np.ndarray], fresh: np.ndarray) -> dict[str, Any]:
        nonlocal state
        layers, state = run(table, places, fresh, state)
        return layers

    return run_window
