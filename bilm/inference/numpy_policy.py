"""What NumPy computes instead of Keras: everything that it finishes sooner.

- `sooner_backend`: a short text as a whole, because Keras and TensorFlow must be imported first.
- `keras_is_on_cpu`: the softmax of every backend on a CPU, because NumPy keeps scores in the cache.
- `numpy_runs_sentences`: in the backend `keras` on TensorFlow, one sentence at a time of a small
  model, its words included, because to start its many small operations takes TensorFlow longer than
  to compute them. Several sentences together are computed by TensorFlow.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from bilm.options.model_options import ModelOptions
from bilm.support.process import BACKEND, backend_of_keras
from bilm.tensors import n_parameters

if TYPE_CHECKING:
    from bilm.language_model import BiLM

SMALL_WORK = 100_000_000_000  # largest product of tokens and weights that NumPy computes sooner


def sooner_backend(options: ModelOptions, n_tokens: int, precision: str = "float32") -> str:
    """Return the backend that computes a text sooner, including the start of its library: `numpy`
    for a short text, unless Keras is imported or the user has chosen its backend. `n_tokens`
    includes the marks of sentences."""
    if precision == "float32" and backend_of_keras() is None:
        return "numpy"
    if "keras" in sys.modules or BACKEND in os.environ or precision != "float32":
        return "keras"
    return "numpy" if n_tokens <= most_tokens(options) else "keras"


def most_tokens(options: ModelOptions) -> int:
    """Return the most tokens that NumPy computes sooner than Keras; see `sooner_backend`."""
    return SMALL_WORK // n_parameters(options)


def numpy_runs_sentences(model: BiLM) -> bool:
    """Return whether NumPy computes single sentences of a model on TensorFlow: if its weights are
    constant, in float32, on the CPU, and its cells small. NumPy reads large cells hardly faster."""
    first, *_ = model.stacks.values()
    cell = first.layers[0].cell
    is_small = cell.frozen and not cell.laid_out.of_input
    return is_small and model.precision == "float32" and keras_is_on_cpu()


def keras_is_on_cpu() -> bool:
    """Return whether Keras computes on the CPU, where NumPy computes the softmax."""
    from keras import ops

    return "CPU" in str(ops.convert_to_tensor(0.0).device).upper()
