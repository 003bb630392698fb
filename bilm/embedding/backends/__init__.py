"""The libraries that compute a stored biLM: `keras`, `numpy` and `onnx_int8`, behind one interface.

`base` defines the interface. `open_backend` selects the library. `numpy` does not import Keras.
"""

from __future__ import annotations

import sys
from importlib import import_module

from bilm.embedding.backends.base import Backend
from bilm.embedding.choices import BACKENDS
from bilm.errors import OptionsError
from bilm.options.model_options import ModelOptions, dense_sizes
from bilm.storage.stored_model import StoredModel
from bilm.support.process import backend_is_chosen

SMALL_WORK = 100_000_000_000  # largest product of tokens and weights that NumPy computes sooner


def open_backend(stored: StoredModel, name: str = "keras", precision: str = "float32") -> Backend:
    """Load a model into the library that computes it.

    Args:
        stored: the model.
        name: `keras` or `numpy`.
        precision: see `ElmoEmbedder`; with `int8`, ONNX Runtime computes the model.
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
    if "keras" in sys.modules or backend_is_chosen():
        return "keras"
    is_small = n_tokens * sum(dense_sizes(options)) <= SMALL_WORK
    is_supported = not _backend_class("numpy", precision).unsupported(options, precision)
    return "numpy" if is_small and is_supported else "keras"


def _backend_class(name: str, precision: str) -> type[Backend]:
    """Return the class of a backend; its module imports its library. Raises: ValueError."""
    if name not in BACKENDS:
        raise ValueError(f"backend is {name!r}, expected one of {BACKENDS}")
    module = "onnx_int8" if (name, precision) == ("keras", "int8") else name
    return import_module(f"{__name__}.{module}").BACKEND
