"""Translates between the tensors of `bilm.tensors`, their names in files, and the variables of a
biLM.

A `NameTable` translates the name of a tensor to and from its name in one kind of file. All kinds
store the same values: the variables in memory, without the padding row of a model with padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.formats.base import Tensors
from bilm.tensors import ROWS, Row, TensorSpec, row_of, template_pattern, tensors_of

if TYPE_CHECKING:
    from bilm.language_model import BiLM
    from bilm.layers.weighted import WeightedLayer

SOFTMAX = "softmax/"
MULTI_LAYER = "MultiRNNCell/Cell{i}/"  # a level that names in one-layer models may lack
TF1_CELL = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}  # by the end of our names


def _hdf5_templates(row: Row) -> tuple[str, ...]:
    """Return the templates of a tensor's names in HDF5 files."""
    return tuple(dict.fromkeys([row.name, row.name.replace(MULTI_LAYER, "")]))


def _tf1_templates(row: Row) -> tuple[str, ...]:
    """Return the templates of a tensor's names in checkpoints of the TensorFlow 1 reference.

    Names in one-layer models have no level of layers, and those in forward-only models no `RNN_0`.
    """
    if not row.name.startswith("RNN_"):
        return (f"lm/{row.name}",)
    end = TF1_CELL.get(row.name.rpartition("/")[2])
    levels = [("RNN_{k}/", "multi_rnn_cell/cell_{i}/"), ("", "multi_rnn_cell/cell_{i}/")]
    levels += [("RNN_{k}/", ""), ("", "")]
    return tuple(f"lm/{k}rnn/{i}lstm_cell/{end}" for k, i in levels) if end else ()


def _checkpoint_templates(row: Row) -> tuple[str, ...]:
    """Return the template of a tensor's name in checkpoints of bilm, where TensorFlow escapes
    slashes."""
    return (f"weights/{row.name.replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE",)


class NameTable:
    """The names of tensors in one kind of file.

    Args:
        templates: returns the templates of a tensor's names in such a file, the preferred one
            first. If a template omits an index, the index is 0.
    """

    def __init__(self, templates: Callable[[Row], tuple[str, ...]]):
        self._rows = [(row.name, template) for row in ROWS for template in templates(row)]

    def names_of(self, name: str) -> list[str]:
        """Return the names in such a file that a variable may have, the preferred one first."""
        return list(self._translated(name, self._rows))

    def variable_of(self, stored: str) -> str | None:
        """Return the variable that a name in such a file denotes, or None."""
        reverse = ((template, name) for name, template in self._rows)
        return next(self._translated(stored, reverse), None)

    @staticmethod
    def _translated(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
        for source, target in rows:
            match = template_pattern(source).fullmatch(name)
            if match is None:
                continue
            index = {"k": "0", "i": "0"} | match.groupdict()
            omitted = {key for key in ("k", "i") if f"{{{key}}}" not in target}
            if all(index[key] == "0" for key in omitted):
                yield target.format(**index)


HDF5 = NameTable(_hdf5_templates)
TF1 = NameTable(_tf1_templates)
OURS = NameTable(_checkpoint_templates)


# --- the variables of a model ---

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


def stored_values(model: BiLM) -> dict[str, np.ndarray]:
    """Return the weights as they are stored: float32 by name, without a padding row."""
    values = {name: variable.numpy() for name, variable in stored_variables(model).items()}
    if model.padding:
        for name, value in values.items():
            values[name] = value[1:] if row_of(name).has_padding else value
    return values


def found_names(
    wanted: Iterable[str], tensors: Tensors, only: Callable[[str], bool] = lambda name: True
) -> dict[str, str]:
    """Return, for the name of each variable, its name in a file; unused tensors cause one warning.

    Args:
        wanted: the names of a model's tensors.
        only: selects variables by name.
    Raises: WeightsError if a variable is missing in the file.
    """
    stored_names = {}
    for name in filter(only, wanted):
        stored = next((other for other in HDF5.names_of(name) if other in tensors.names), None)
        if stored is None:
            raise WeightsError(f"{tensors.source}: {name} is missing; the options require it")
        stored_names[name] = stored
    extra = sorted(filter(only, tensors.names.difference(stored_names.values())))
    if extra:
        logging.warning(
            "%s: the model does not use %d datasets: %s",
            tensors.source, len(extra), ", ".join(extra[:8]),
        )  # fmt: skip
    return stored_names


def assign_tensors(
    model: BiLM, tensors: Tensors, only: Callable[[str], bool] = lambda name: True
) -> None:
    """Set the variables of a built `BiLM` that `only` selects, from the tensors of a file.

    Raises: WeightsError if a value is missing, damaged, of another shape or not finite.
    """
    variables = stored_variables(model)
    for name, value in checked_values(specs_of(model), tensors, only, model.padding):
        variables[name].assign(value)


def checked_values(
    specs: Mapping[str, TensorSpec],
    tensors: Tensors,
    only: Callable[[str], bool] = lambda name: True,
    padding: bool = False,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names of the tensors of a model that `only` selects, and the values that a file
    contains for them, with a padding row if the model has padding.

    Raises: WeightsError if a value is missing, damaged, of another shape or not finite.
    """
    with tensors.opened() as read:
        for name, stored in found_names(specs, tensors, only).items():
            where = f"{tensors.source}: {stored}"
            yield name, checked(read(stored), specs[name], padding, where)


def checked(value: Any, spec: TensorSpec, padding: bool, where: str) -> np.ndarray:
    """Check a stored value and return it as the value of a variable.

    Args:
        value: an array, or an object with a shape that NumPy can convert to an array.
        spec: the tensor, with the shape that the value must have.
        padding: whether the variable belongs to a model with padding.
        where: source and name of the value, for messages.
    Raises: WeightsError if it has another shape or is not finite.
    """
    if value.shape != spec.shape:
        raise WeightsError(f"{where} has shape {value.shape}, but the options require {spec.shape}")
    # NumPy converts values, because HDF5 converts float16 ten times more slowly. A float64 value
    # that exceeds the range of float32 becomes infinite.
    with np.errstate(over="ignore"):
        value = np.asarray(value).astype(np.float32, copy=False)
    if not np.isfinite(value).all():
        raise WeightsError(f"{where} contains values that are not finite")
    if padding and spec.row.has_padding:
        return np.concatenate([np.zeros_like(value[:1]), value])
    return value


def with_directions(options: ModelOptions, stored: Callable[[], Iterable[str]]) -> ModelOptions:
    """Return options that contain `bidirectional`; if the key is missing, it is derived from the
    names of the weights.

    Args:
        options: options of a stored model.
        stored: returns the names of its weights, in HDF5 or in a checkpoint of TensorFlow 1.
    """
    if options.bidirectional is not None:
        return options
    return options.replace(bidirectional=any("RNN_1/" in name for name in stored()))


def is_bilm(name: str) -> bool:
    """Return whether a variable belongs to the biLM, not to its softmax."""
    return not name.startswith(SOFTMAX)


def is_softmax(name: str) -> bool:
    """Return whether a variable belongs to the softmax, not to the biLM."""
    return name.startswith(SOFTMAX)


def n_words(stored: Tensors) -> int:
    """Return the number of rows of the word table `embedding`. Raises: WeightsError."""
    with stored.opened() as tensor:
        shape = tensor("embedding").shape
    if len(shape) != 2 or not all(shape):
        raise WeightsError(
            f"{stored.source}: embedding has shape {shape}, expected (words, projection_dim)"
        )
    return shape[0]
