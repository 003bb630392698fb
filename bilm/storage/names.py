"""Translates between the tensors of `bilm.tensors`, stored values, and the variables of a biLM. All
files store the same values: the variables in memory, without the row of padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.storage.stored_tensors import LazyTensor, Tensors, opened
from bilm.tensors import TensorSpec, tensors_of

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.layers.weighted import WeightedLayer

SOFTMAX = "softmax/"
LAYERS = {  # the layer of a `BiLM` that contains a part, except the cells
    "word table": "encoder",
    "lexicon": "encoder",
    "characters": "encoder.cnn",
    "filter": "encoder.cnn",
    "highway": "encoder.highway",
    "projection": "encoder",
    "softmax kernel": "softmax",
    "softmax bias": "softmax",
}


def specs_of(model: BiLM) -> dict[str, TensorSpec]:
    """Return the tensors of a `BiLM`, which need not be built, by name and in its order."""
    specs = tensors_of(model.options, model.n_tokens, has_softmax=model.softmax is not None)
    return {spec.name: spec for spec in specs}


def layer_of(model: BiLM, spec: TensorSpec) -> WeightedLayer:
    """Return the layer of a `BiLM` that contains a tensor."""
    if spec.part in LAYERS:
        return attrgetter(LAYERS[spec.part])(model)
    return model.stacks[model.directions[spec.k]].layers[spec.i].cell


def stored_variables(model: BiLM) -> dict[str, Any]:
    """Return the variables of a built `BiLM` by name, in the order of the graph."""
    specs = specs_of(model).items()
    return {name: layer_of(model, spec).own_weight(spec.attribute) for name, spec in specs}


def stored_tensors(
    specs: Mapping[str, TensorSpec], sources: Sequence[Tensors]
) -> list[tuple[TensorSpec, LazyTensor, str]]:
    """Return each tensor of a model, as stored in one of the sources, and its place for messages;
    unused tensors cause one warning. Raises: WeightsError if a tensor is missing."""
    source = " and ".join(dict.fromkeys(tensors.source for tensors in sources))
    unused = {name: tensors for tensors in sources for name in tensors}
    stored = []
    for name, spec in specs.items():
        if name not in unused:
            name = name.replace("MultiRNNCell/Cell0/", "")  # files of one layer may omit this
        if name not in unused:
            raise WeightsError(f"{source}: {spec.name} is missing; the options require it")
        tensors = unused.pop(name)
        stored.append((spec, tensors[name], f"{tensors.source}: {name}"))
    if unused:
        listed = ", ".join(sorted(unused)[:8])
        logging.warning("%s: the model does not use %d datasets: %s", source, len(unused), listed)
    return stored


def checked_values(
    specs: Mapping[str, TensorSpec], sources: Sequence[Tensors], padding: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and value of the tensors of a model, with a padding row if it has padding. Raises:
    WeightsError if one is missing, damaged, of another shape or not finite."""
    with opened(sources) as tensors:
        for spec, tensor, where in stored_tensors(specs, tensors):
            yield spec.name, checked(tensor, spec, padding, where)


def checked(tensor: LazyTensor, spec: TensorSpec, padding: bool, where: str) -> np.ndarray:
    """Return a stored value as a variable holds it: float32, with a padding row if the model has
    padding. Raises: WeightsError, which contains `where`, if it has another shape than `spec` or is
    not finite."""
    if tensor.shape != spec.shape:
        raise WeightsError(
            f"{where} has shape {tensor.shape}, but the options require {spec.shape}"
        )
    # NumPy converts values, because HDF5 converts float16 ten times more slowly. A float64 value
    # that exceeds the range of float32 becomes infinite.
    with np.errstate(over="ignore"):
        value = np.asarray(tensor).astype(np.float32, copy=False)
    if not np.isfinite(value).all():
        raise WeightsError(f"{where} contains values that are not finite")
    if padding and spec.row.has_padding:
        return np.concatenate([np.zeros_like(value[:1]), value])
    return value


def is_bilm(name: str) -> bool:
    """Return whether a variable belongs to the biLM, not to its softmax."""
    return not name.startswith(SOFTMAX)


def n_words(stored: Tensors) -> int:
    """Return the number of rows of the word table `embedding`. Raises: WeightsError."""
    return stored.axis_lengths("embedding")["words"]
