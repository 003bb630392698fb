"""`Backend`: the interface to the libraries that compute a stored biLM, and their choice."""

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
from bilm.inference.softmax import Softmax
from bilm.options.model_options import ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.support.process import BACKEND
from bilm.tensors import n_parameters

SMALL_WORK = 100_000_000_000  # largest product of tokens and weights that NumPy computes sooner


# Places and starts of a window -> layers by direction: see `Backend.begin`.
Run = Callable[[dict[str, np.ndarray], np.ndarray], dict[str, Any]]


class Backend(ABC):
    """A stored biLM for inference, computed by one library.

    Attributes:
        options: of the model.
        n_tokens: number of words that it reads; None for characters.
        softmax: the softmax; None if it was not loaded.
        runs_ahead: whether windows may be computed in a thread while the caller processes the last
            one.
    """

    runs_ahead = False
    softmax: Softmax | None = None

    def __init__(self, options: ModelOptions, n_tokens: int | None = None):
        self.options, self.n_tokens = options, n_tokens

    @classmethod
    @abstractmethod
    def open(cls, stored: StoredModel, precision: str, has_softmax: bool) -> Backend:
        """Load a model that is supported. Raises: WeightsError; ValueError for the precision."""

    @classmethod
    def unsupported(cls, precision: str, has_softmax: bool) -> str | None:
        """Return what this backend does not compute, and what to use instead; None if it computes
        the model."""
        return None

    @abstractmethod
    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens, float32 (U, P).

        Args:
            ids: ids of characters, int32 (U, C), C at least the width of the widest filter; ids of
                words, (U,), for a model that reads words.
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


def open_backend(
    stored: StoredModel, name: str = "keras", precision: str = "float32", has_softmax: bool = False
) -> Backend:
    """Load a model into the library that computes it: `keras` or `numpy`, and ONNX Runtime for the
    precision `int8`.

    Args:
        stored: the model.
        name: one of `BACKENDS`.
        precision: see `BiLM`.
        has_softmax: whether to load the softmax, too.
    Raises: OptionsError if the library does not support the precision or the softmax; WeightsError;
        ValueError for an unknown name or precision.
    """
    kind = _backend_class(name, precision)
    if reason := kind.unsupported(precision, has_softmax):
        raise OptionsError(f"{stored}: the backend {name} {reason}")
    return kind.open(stored, precision, has_softmax)


def sooner_backend(
    options: ModelOptions, n_tokens: int, precision: str = "float32", n_words: int = 0
) -> str:
    """Return the backend that computes a text sooner, including the start of its library: `numpy`
    for a short text, unless Keras is imported or the user has chosen its backend.

    Args:
        options: of the model.
        n_tokens: number of tokens, with marks of sentences.
        precision: see `BiLM`.
        n_words: size of the vocabulary that is predicted; 0 for embedding.
    """
    if "keras" in sys.modules or BACKEND in os.environ:
        return "keras"
    is_small = n_tokens <= most_tokens(options, n_words)
    is_supported = not _backend_class("numpy", precision).unsupported(precision, bool(n_words))
    return "numpy" if is_small and is_supported else "keras"


def most_tokens(options: ModelOptions, n_words: int = 0) -> int:
    """Return the most tokens that NumPy computes sooner than Keras; see `sooner_backend`."""
    softmax_size = n_words * options.lstm.projection_dim
    return SMALL_WORK // (n_parameters(options) + len(options.directions) * softmax_size)


def _backend_class(name: str, precision: str) -> type[Backend]:
    """Return the class of a backend; its module imports its library. Raises: ValueError."""
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {BACKENDS}")
    module = "onnx_int8" if (name, precision) == ("keras", "int8") else name
    return import_module(f"bilm.inference.{module}").BACKEND
