"""What NumPy computes instead of Keras: everything that it finishes sooner."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING

from absl import logging

from bilm.errors import require_one_of
from bilm.inference import BACKENDS
from bilm.options.model_options import ModelOptions
from bilm.support.process import BACKEND, backend_of_keras, gpu_driver, is_stopped_by_fork
from bilm.tensors import n_parameters

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.storage.stored_model import StoredModel

# Largest product of tokens and weights that NumPy computes sooner: on a CPU, and where Keras may
# have a GPU
SMALL_WORK = 2_000_000_000_000
SMALL_WORK_WITH_GPU = 100_000_000_000


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


def numpy_runs_sentences(model: BiLM) -> bool:
    """Return whether NumPy computes single sentences of a model on TensorFlow, which starts many
    small operations more slowly than it computes them: if weights are constant, in float32, on the
    CPU, and cells small. NumPy reads large cells hardly faster."""
    first, *_ = model.stacks.values()
    cell = first.layers[0].cell
    is_small = cell.frozen and not cell.laid_out.of_input
    return is_small and model.precision == "float32" and keras_is_on_cpu()


def keras_is_on_cpu() -> bool:
    """Return whether Keras computes on the CPU, where NumPy computes the softmax of every backend,
    because it keeps scores in the cache."""
    from keras import ops

    return "CPU" in str(ops.convert_to_tensor(0.0).device).upper()
