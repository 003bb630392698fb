"""The stored names of the variables of a biLM. All files store the same values: the variables in
memory, without the row of padding."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bilm.storage.stored_tensors import Tensors
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


def is_bilm(name: str) -> bool:
    """Return whether a variable belongs to the biLM, not to its softmax."""
    return not name.startswith(SOFTMAX)


def n_words(stored: Tensors) -> int:
    """Return the number of rows of the word table `embedding`. Raises: WeightsError."""
    return stored.axis_lengths("embedding")["words"]
