"""`Backend`: the interface to the libraries that compute a stored biLM, and their choice."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
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


class Backend(ABC):
    """A stored biLM for inference, computed by one library.

    Attributes:
        n_tokens: number of words that it reads; None for characters.
        softmax: None if it was not loaded.
        runs_ahead: whether windows may be computed in a thread while the caller processes the last
            one.
    """

    runs_ahead = False
    softmax: Softmax | None = None

    def __init__(self, options: ModelOptions, n_tokens: int | None):
        self.options = options
        self.n_tokens = n_tokens

    @abstractmethod
    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens, float32 (U, P), from their characters, int32 (U, C), C at
        least the width of the widest filter, or from words, (U,). A library that compiles code for
        each shape may pad the ids to `n_rows`."""

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Any, list[Any]]:
        """Return what the first of several windows reads: the vectors of tokens, float32 (U, P),
        and the zero state of B rows, by direction, layer, cell before hidden, float32 (B, ...)."""
        lstm = self.options.lstm
        widths = (lstm.dim, lstm.projection_dim) * (len(self.options.directions) * lstm.n_layers)
        return table, [np.zeros((n_rows, width), np.float32) for width in widths]

    @abstractmethod
    def run_window(
        self, table: Any, places: dict[str, np.ndarray], fresh: np.ndarray, state: list[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Run all stacks over a window of steps.

        Args:
            table: as `start` returns it.
            places: for each direction, in its reading order, rows of the table, int32 (B, T).
            fresh: the steps at which a row starts from zero state, boolean (B, T).
            state: the result of `start` or of the window before.
        Returns: for each direction the token vectors and the outputs of all layers, (layers + 1, B,
            T, P), which `np.asarray` converts; and the last state.
        """


# --- choosing a backend ---


def open_backend(
    stored: StoredModel, name: str = "keras", precision: str = "float32", has_softmax: bool = False
) -> Backend:
    """Load a model into one of `BACKENDS`; with the precision "int8", `keras` uses ONNX Runtime.

    Args:
        precision: see `BiLM`.
        has_softmax: whether to load the softmax, too.
    Raises: OptionsError if the library does not support the precision or the softmax; WeightsError;
        ValueError for an unknown name or precision.
    """
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {BACKENDS}")
    if name == "numpy" and precision != "float32":
        raise OptionsError(
            f"{stored}: the backend numpy computes in float32, not in {precision}; use the backend "
            "keras"
        )
    if precision == "int8" and has_softmax:
        raise OptionsError(f"{stored}: the backend keras does not score in int8; use float32")

    # The module of a backend imports its library.
    module = import_module(f"bilm.inference.{'onnx_int8' if precision == 'int8' else name}")
    return module.load(stored, precision, has_softmax)


def sooner_backend(
    options: ModelOptions, n_tokens: int, precision: str = "float32", n_words: int = 0
) -> str:
    """Return the backend that computes a text sooner, including the start of its library: `numpy`
    for a short text, unless Keras is imported or the user has chosen its backend.

    Args:
        n_tokens: number of tokens, with marks of sentences.
        n_words: size of the vocabulary that is predicted; 0 for embedding.
    """
    if "keras" in sys.modules or BACKEND in os.environ or precision != "float32":
        return "keras"
    return "numpy" if n_tokens <= most_tokens(options, n_words) else "keras"


def most_tokens(options: ModelOptions, n_words: int = 0) -> int:
    """Return the most tokens that NumPy computes sooner than Keras; see `sooner_backend`."""
    softmax_size = n_words * options.lstm.projection_dim
    return SMALL_WORK // (n_parameters(options) + len(options.directions) * softmax_size)
