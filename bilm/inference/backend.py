"""`Backend`: a stored biLM whose parts a library computes, and the choice of the library."""

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from absl import logging

from bilm.errors import OptionsError, require_one_of
from bilm.inference import BACKENDS
from bilm.inference.softmax import Softmax
from bilm.layers.types import State, Tensor
from bilm.options.model_options import LstmOptions, ModelOptions
from bilm.precisions import INFERENCE_PRECISIONS
from bilm.storage.stored_model import StoredModel
from bilm.support.process import (
    BACKEND,
    backend_of_keras,
    gpu_driver,
    is_stopped_by_fork,
    note_computing,
)
from bilm.tensors import CELL, n_parameters

ByDirection: TypeAlias = dict[str, np.ndarray]
# Largest product of tokens and weights that NumPy computes sooner: on a CPU, and where Keras may
# have a GPU
SMALL_WORK = 2_000_000_000_000
SMALL_WORK_WITH_GPU = 100_000_000_000


class StoredCell(NamedTuple):
    """The weights of an LSTM cell, in the form that a backend reads."""

    kernel: Any  # W: 2 P, 4 D
    bias: np.ndarray  # b: 4 D
    projection: Any  # W_p: D, P; None without a projection


def stored_cell(lstm: LstmOptions, read: Callable[[str], Any], k: int, i: int) -> StoredCell:
    """Return the cell of layer i of direction k; `read` returns the stored tensor of a name."""
    name = CELL.format(k=k, i=i)
    projection = read(f"{name}/W_P_0") if lstm.projection_dim != lstm.dim else None
    return StoredCell(read(f"{name}/W_0"), read(f"{name}/B"), projection)


class Window(NamedTuple):
    """Some steps of B rows."""

    places: ByDirection  # rows of the table that it reads, in its order, int32 (B, T)
    fresh: np.ndarray  # the steps at which a row starts from zero state, boolean (B, T)


class Stacks(ABC):
    """The LSTM stacks of all directions, computed by one library. Attributes: `has_threads`,
    whether its threads compute, which a fork does not have."""

    has_threads = True

    def __init__(self, options: ModelOptions):
        lstm = options.lstm
        n_cells = len(options.directions) * lstm.n_layers
        self.state_widths = (lstm.dim, lstm.projection_dim) * n_cells

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        """Return what the first of several windows reads: the vectors of tokens, float32 (U, P),
        and the zero state of `n_rows` rows."""
        return table, [np.zeros((n_rows, width), np.float32) for width in self.state_widths]

    @abstractmethod
    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        """Run all stacks over a window of steps.

        Args:
            table, state: from `start`; later windows continue from the last state.
        Returns: for each direction the token vectors and the outputs of all layers, float32
            (layers + 1, B, T, P); and the last state.
        """


@dataclass(frozen=True)
class Backend:
    """A stored biLM for inference, whose parts one library computes.

    `encode` is a function from tokens to their vectors, float32 (U, P). Tokens are characters,
    int32 (U, C), C at least the width of the widest filter, or words, (U,).
    """

    options: ModelOptions
    n_tokens: int | None  # number of words that it reads; None for characters
    encode: Callable[[np.ndarray], np.ndarray]
    stacks: Stacks
    one_row: Stacks | None = None  # stacks that run one row faster, if there are any
    softmax: Softmax | None = None  # None if it was not loaded
    runs_ahead: bool = False  # whether a thread may compute a window while the last one is used

    def check_process(self) -> None:
        """Raise BilmError if the library would hang, because this process was forked."""
        if self.stacks.has_threads:
            note_computing()


def chosen_backend(
    stored: StoredModel,
    n_tokens: float = math.inf,
    name: str | None = None,
    precision: str = "float32",
) -> str:
    """Return one of `BACKENDS` for a text of `n_tokens`, with the marks of sentences: `name`, or
    the one that computes it sooner, including the import of its library: `numpy` for a short text,
    unless Keras is imported or the user has chosen its backend, and any text if this backend is
    missing, or PyTorch or JAX on a CPU, which take several times as long. NumPy also replaces a
    Keras that would hang after a fork. It computes in float32 only. Raises: OptionsError for an
    unknown name."""
    require_one_of("backend", name or "keras", BACKENDS)
    if name == "numpy" or precision != "float32":
        return name or "keras"
    if is_stopped_by_fork():
        logging.warning("%s: after a fork, NumPy computes, because Keras would hang", stored)
        return "numpy"
    library = backend_of_keras()
    is_slow = library in ("torch", "jax") and not may_have_gpu()
    if name or library is None or is_slow:
        return name or "numpy"
    is_open = "keras" not in sys.modules and BACKEND not in os.environ
    return "numpy" if is_open and n_tokens <= most_tokens(stored.options) else "keras"


def most_tokens(options: ModelOptions) -> int:
    """Return the most tokens that NumPy computes sooner than Keras; see `chosen_backend`."""
    return (SMALL_WORK_WITH_GPU if may_have_gpu() else SMALL_WORK) // n_parameters(options)


def may_have_gpu() -> bool:
    """Return whether this machine may have a GPU, without the import of a library."""
    return sys.platform == "darwin" or gpu_driver() is not None


def open_backend(
    stored: StoredModel,
    name: str | None = None,
    precision: str = "float32",
    has_softmax: bool = False,
) -> Backend:
    """Load a model, with its softmax if `has_softmax`, into a backend: see `chosen_backend`. With
    the precision "int8", `keras` uses ONNX Runtime. Raises: OptionsError if the library does not
    support the precision, see `BiLM`, or the softmax, or for unknown ones; WeightsError;
    ValueError; BilmError after a fork."""
    require_one_of("precision", precision, INFERENCE_PRECISIONS)
    name = chosen_backend(stored, name=name, precision=precision)
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
