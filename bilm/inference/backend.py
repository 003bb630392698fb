"""The libraries that compute a stored biLM: `keras`, `numpy` and `onnx_int8`, behind one interface.

`Backend` is the interface, and `open_backend` selects the library. `numpy` does not import Keras.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bilm.errors import OptionsError
from bilm.inference import BACKENDS
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.support.process import BACKEND
from bilm.tensors import n_parameters

SMALL_WORK = 100_000_000_000  # largest product of tokens and weights that NumPy computes sooner


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
        """Return the function that runs all stacks over one window after another from zero state.

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


# --- choosing a backend ---


def open_backend(stored: StoredModel, name: str = "keras", precision: str = "float32") -> Backend:
    """Load a model into the library that computes it: `keras` or `numpy`, and ONNX Runtime for the
    precision `int8`.

    Raises: OptionsError if the library does not support the model or the precision; WeightsError;
        ValueError for an unknown name or precision.
    """
    kind = _backend_class(name, precision)
    if reason := kind.unsupported(stored.options, precision):
        raise OptionsError(f"{stored}: the backend {name} {reason}; use the backend keras")
    return kind.open(stored, precision)


def sooner_backend(options: ModelOptions, precision: str, n_tokens: int) -> str:
    """Return the backend that embeds a text sooner, including the start of its library: `numpy` for
    a short text, unless Keras is imported or the user has chosen its backend."""
    if "keras" in sys.modules or BACKEND in os.environ:
        return "keras"
    is_small = n_tokens * n_parameters(options) <= SMALL_WORK
    is_supported = not _backend_class("numpy", precision).unsupported(options, precision)
    return "numpy" if is_small and is_supported else "keras"


def _backend_class(name: str, precision: str) -> type[Backend]:
    """Return the class of a backend; its module imports its library. Raises: ValueError."""
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {BACKENDS}")
    module = "onnx_int8" if (name, precision) == ("keras", "int8") else name
    return import_module(f"bilm.inference.{module}").BACKEND
