"""Translates between stored names and the variables of a biLM, with tables that work in both
directions.

The name of a variable is its name in the HDF5 format that bilm-tf, AllenNLP and simple_elmo share.
A `NameTable` translates it to and from the names in another kind of file. All kinds store the same
values: the variables in memory, without the padding row of a model with padding.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.formats.base import Tensors

if TYPE_CHECKING:
    from bilm.layers.weighted import WeightedLayer

SOFTMAX = "softmax/"
PADDED = ("char_embed", "embedding", "word_embed")


class Variable(NamedTuple):
    """A variable of one part of a biLM, or several that differ in an index.

    Templates hold `{k}`, the number of the direction, and `{i}`, that of a filter or layer. If a
    template omits an index, the index is 0: names in one-layer models of the reference have no
    MultiRNNCell level, and names in forward-only models have no `RNN_0`. The preferred template
    comes first.

    Fields:
        attribute: its name in the layer.
        hdf5: its names in HDF5 files; the first identifies the variable.
        tf1: its names in checkpoints of the TensorFlow 1 reference.
    """

    attribute: str
    hdf5: tuple[str, ...]
    tf1: tuple[str, ...]


def _plain(attribute: str, name: str) -> Variable:
    return Variable(attribute, (name,), (f"lm/{name}",))


def _of_cell(attribute: str, hdf5: str, tf1: str) -> Variable:
    levels = "multi_rnn_cell/cell_{i}/", ""
    return Variable(
        attribute,
        tuple(f"RNN_{{k}}/RNN/{level}LSTMCell/{hdf5}" for level in ("MultiRNNCell/Cell{i}/", "")),
        tuple(f"lm/{k}rnn/{i}lstm_cell/{tf1}" for i in levels for k in ("RNN_{k}/", "")),
    )


VARIABLES = {  # by the part of the biLM that owns them
    "word table": (_plain("embedding", "embedding"),),
    "lexicon": (_plain("word_table", "word_embed"),),
    "characters": (_plain("embedding", "char_embed"),),
    "filter": (_plain("kernel_{i}", "CNN/W_cnn_{i}"), _plain("bias_{i}", "CNN/b_cnn_{i}")),
    "highway": (
        _plain("gate_{i}", "CNN_high_{i}/W_carry"),
        _plain("gate_bias_{i}", "CNN_high_{i}/b_carry"),
        _plain("transform_{i}", "CNN_high_{i}/W_transform"),
        _plain("bias_{i}", "CNN_high_{i}/b_transform"),
    ),
    "projection": (_plain("kernel", "CNN_proj/W_proj"), _plain("bias", "CNN_proj/b_proj")),
    "cell": (_of_cell("kernel", "W_0", "kernel"), _of_cell("bias", "B", "bias")),
    "cell projection": (_of_cell("projection", "W_P_0", "projection/kernel"),),
    "softmax kernel": (_plain("kernel", "softmax/W"),),
    "softmax bias": (_plain("bias", "softmax/b"),),
}


class NameTable:
    """The names of variables in one kind of file.

    Args:
        templates: returns the templates of a variable's names in such a file.
    """

    def __init__(self, templates: Callable[[Variable], tuple[str, ...]]):
        self._rows = [
            (own, template)
            for variables in VARIABLES.values()
            for variable in variables
            for own, template in ((variable.hdf5[0], t) for t in templates(variable))
        ]

    def names_of(self, name: str) -> list[str]:
        """Return the names in such a file that a variable may have, the preferred one first."""
        return list(self._translated(name, self._rows))

    def variable_of(self, stored: str) -> str | None:
        """Return the variable that a name in such a file denotes, or None."""
        reverse = ((template, own) for own, template in self._rows)
        return next(self._translated(stored, reverse), None)

    @staticmethod
    def _translated(name: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
        for source, target in rows:
            found = _pattern(source).fullmatch(name)
            if found is None:
                continue
            index = {"k": "0", "i": "0"} | found.groupdict()
            omitted = {key for key in ("k", "i") if f"{{{key}}}" not in target}
            if all(index[key] == "0" for key in omitted):
                yield target.format(**index)


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w)\\}", r"(?P<\1>\\d+)", re.escape(template)))


HDF5 = NameTable(lambda variable: variable.hdf5)
TF1 = NameTable(lambda variable: variable.tf1)
OURS = NameTable(  # TensorFlow escapes the slashes of names in checkpoints
    lambda variable: (f"weights/{variable.hdf5[0].replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE",)
)


def stored_places(model: Any) -> dict[str, tuple[WeightedLayer, str]]:
    """Return the layer and the attribute of each variable of a `BiLM`, by the variable's name.

    The names have the order of the graph. The model need not be built.
    """
    return {
        variable.hdf5[0].format(**index): (layer, variable.attribute.format(**index))
        for part, layer, index in _parts(model)
        for variable in VARIABLES[part]
    }


def _parts(model: Any) -> Iterator[tuple[str, WeightedLayer, Mapping[str, int]]]:
    """Yield each part of a model, its layer and its indices."""
    from bilm.layers.token_encoder import WordEncoder

    encoder = model.encoder
    if isinstance(encoder, WordEncoder):
        yield "word table", encoder, {}
    else:
        if encoder.words is not None:
            yield "lexicon", encoder, {}
        if encoder.filters:
            yield "characters", encoder.cnn, {}
            for i in range(len(encoder.filters)):
                yield "filter", encoder.cnn, {"i": i}
            for i in range(encoder.n_highway):
                yield "highway", encoder.highway, {"i": i}
        if encoder.has_projection:
            yield "projection", encoder, {}
    for k, direction in enumerate(model.directions):
        for i, layer in enumerate(model.stacks[direction].layers):
            yield "cell", layer.cell, {"k": k, "i": i}
            if layer.cell.has_projection:
                yield "cell projection", layer.cell, {"k": k, "i": i}
    if model.softmax is not None:
        if not model.options.share_embedding_softmax:
            yield "softmax kernel", model.softmax, {}
        yield "softmax bias", model.softmax, {}


def stored_variables(model: Any) -> dict[str, Any]:
    """Return the variables of a built `BiLM` by name, in the order of the graph."""
    places = stored_places(model)
    return {stored: layer.own_weight(name) for stored, (layer, name) in places.items()}


def stored_values(model: Any) -> dict[str, np.ndarray]:
    """Return the weights as they are stored: float32 by name, without a padding row."""
    values = {name: v.numpy() for name, v in stored_variables(model).items()}
    if model.padding:
        values.update({name: values[name][1:] for name in PADDED if name in values})
    return values


def found_names(
    wanted: Iterable[str], tensors: Tensors, only: Callable[[str], bool] = lambda name: True
) -> dict[str, str]:
    """Return, for the name of each variable, its name in a file; unused tensors cause one warning.

    Args:
        wanted: the names of a model's variables: see `stored_places`.
        only: selects variables by name.
    Raises: WeightsError if a variable is missing in the file.
    """
    found = {}
    for name in filter(only, wanted):
        stored = next((other for other in HDF5.names_of(name) if other in tensors.names), None)
        if stored is None:
            raise WeightsError(f"{tensors.source}: {name} is missing; the options require it")
        found[name] = stored
    extra = sorted(filter(only, tensors.names.difference(found.values())))
    if extra:
        logging.warning(
            "%s: the model does not use %d datasets: %s",
            tensors.source, len(extra), ", ".join(extra[:8]),
        )  # fmt: skip
    return found


def assign_tensors(
    model: Any, tensors: Tensors, only: Callable[[str], bool] = lambda name: True
) -> None:
    """Set the variables of a built `BiLM` that `only` selects, from the tensors of a file.

    Raises: WeightsError if a value is missing, damaged, of another shape or not finite.
    """
    variables = stored_variables(model)
    for name, value in values_of(model, tensors, only):
        variables[name].assign(value)


def values_of(
    model: Any, tensors: Tensors, only: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names of the variables of a built `BiLM` that `only` selects, and the values that
    a file contains for them.

    Raises: WeightsError if a value is missing, damaged, of another shape or not finite.
    """
    variables = stored_variables(model)
    with tensors.opened() as read:
        for name, stored in found_names(variables, tensors, only).items():
            where = f"{tensors.source}: {stored}"
            padded = model.padding and name in PADDED
            yield name, checked(read(stored), tuple(variables[name].shape), padded, where)


def checked(value: Any, shape: tuple[int, ...], padded: bool, where: str) -> np.ndarray:
    """Check a stored value and return it as the value of a variable.

    Args:
        value: an array, or an object with a shape that NumPy can convert to an array.
        shape: shape of the variable.
        padded: whether the variable has a row of zeros above the stored rows.
        where: source and name of the value, for messages.
    Raises: WeightsError if it has another shape or is not finite.
    """
    expected = (shape[0] - 1, *shape[1:]) if padded else shape
    if value.shape != expected:
        raise WeightsError(f"{where} has shape {value.shape}, but the options require {expected}")
    # A float64 value that exceeds the range of float32 becomes infinite.
    with np.errstate(over="ignore"):
        value = np.asarray(value, dtype=np.float32)
    if not np.isfinite(value).all():
        raise WeightsError(f"{where} contains values that are not finite")
    return np.concatenate([np.zeros_like(value[:1]), value]) if padded else value


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
