"""The names and layouts of stored tensors, as tables of bilm's variables and what they are made of.

AllenNLP and ELMoForManyLangs share a graph, that of bilm. The stored numbers differ in two ways: a
highway's gate passes the input instead of the transform, so its weights are negated; and the forget
bias includes the 1 that bilm adds. Files of TensorFlow 1 differ in the names of cells only.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.errors import OptionsError, WeightsError
from bilm.options.model_options import DIRECTIONS, ModelOptions
from bilm.storage.stored_tensors import LazyTensor, Tensors
from bilm.tensors import CELL, ROWS, template_pattern

Layout = Callable[..., np.ndarray]

# --- layouts: a variable's value, from the stored arrays; ValueError if their shapes do not fit ---


def filter_kernel(stored: np.ndarray) -> np.ndarray:
    """(filters, E, width) -> (1, width, E, filters)."""
    return stored.transpose(2, 1, 0)[None]


def transform(stored: np.ndarray) -> np.ndarray:
    """Return a highway's transform, the upper half: (2 F, F) -> (F, F), or (2 F,) -> (F,)."""
    return np.split(stored, 2)[0].T


def carry(stored: np.ndarray) -> np.ndarray:
    """Return a highway's gate, the lower half, negated: shapes as for `transform`."""
    return -np.split(stored, 2)[1].T


def bias(stored: np.ndarray) -> np.ndarray:
    """Return the biases of an LSTM's gates i, j, f, o, stored as i, f, g, o: (4 D,)."""
    i, f, g, o = np.split(stored, 4)
    return np.concatenate([i, g, f - 1, o])


def kernel(inputs: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return input weights over recurrent weights: (4 D, P) and (4 D, P) -> (2 P, 4 D)."""
    if inputs.shape != states.shape:
        raise ValueError("input and recurrent weights have different shapes")
    i, f, g, o = np.split(np.concatenate([inputs, states], axis=1), 4)  # D, 2 P
    return np.ascontiguousarray(np.concatenate([i, g, f, o]).T)


# --- the tables ---


class StoredRow(NamedTuple):
    """One row of a table: a variable and the stored tensors that it is made of, by default the
    same tensor. The names are templates with `{i}`, the index of a filter or layer, and `{k}`, that
    of the direction."""

    variable: str
    stored: tuple[str, ...]
    layout: Layout = np.asarray


def lstm_rows(prefix: str = "") -> list[StoredRow]:
    """Return the rows of the LSTMs; `prefix` is the name of their module, with a dot."""
    rows = []
    for k, direction in enumerate(DIRECTIONS):
        cell = CELL.replace("{k}", str(k))
        layer = f"{prefix}{direction}_layer_{{i}}"
        inputs, states = f"{layer}.input_linearity", f"{layer}.state_linearity"
        rows += [
            StoredRow(f"{cell}/W_0", (f"{inputs}.weight", f"{states}.weight"), kernel),
            StoredRow(f"{cell}/B", (f"{states}.bias",), bias),
            StoredRow(f"{cell}/W_P_0", (f"{layer}.state_projection.weight",), np.transpose),
        ]
    return rows


def encoder_rows(convolution: str, highway: str, projection: str) -> tuple[StoredRow, ...]:
    """Return the rows of the token encoder, given the names of its modules before the index."""
    return (
        StoredRow("CNN/W_cnn_{i}", (convolution + "{i}.weight",), filter_kernel),
        StoredRow("CNN/b_cnn_{i}", (convolution + "{i}.bias",)),
        StoredRow("CNN_high_{i}/W_transform", (highway + "{i}.weight",), transform),
        StoredRow("CNN_high_{i}/b_transform", (highway + "{i}.bias",), transform),
        StoredRow("CNN_high_{i}/W_carry", (highway + "{i}.weight",), carry),
        StoredRow("CNN_high_{i}/b_carry", (highway + "{i}.bias",), carry),
        StoredRow("CNN_proj/W_proj", (projection + ".weight",), np.transpose),
        StoredRow("CNN_proj/b_proj", (projection + ".bias",)),
    )


def tf1_rows(scope: str, cell: str) -> list[StoredRow]:
    """Return the rows of TensorFlow 1, given the scope of the variables and the name of a cell."""
    ends = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    rows = []
    for row in ROWS:
        home, _, end = row.name.rpartition("/")
        name = f"{cell}/{ends[end]}" if home == CELL else row.name
        rows.append(StoredRow(row.name, (scope + name,)))
    return rows


# --- the variables of a file ---


def variables_of(
    stored: Mapping[str, Any], rows: Iterable[StoredRow], where: str | Path, prefix: str = ""
) -> dict[str, LazyTensor]:
    """Return the variables of a model by name, from arrays or tensors whose names are in `rows`
    after `prefix`. Raises: WeightsError, which names the file `where`, for a tensor that is missing
    beside its companion, has an unusable shape, or does not contain floating-point numbers."""
    by_name = {}
    inside = [name.removeprefix(prefix) for name in stored if name.startswith(prefix)]
    for row in rows:
        pattern = template_pattern(row.stored[0])
        for match in filter(None, map(pattern.fullmatch, inside)):
            index = {"k": 0, "i": 0, **match.groupdict()}  # models of one layer may omit it
            names = [prefix + name.format(**index) for name in row.stored]
            by_name[row.variable.format(**index)] = _variable(stored, names, row.layout, where)
    return by_name


def _variable(
    by_name: Mapping[str, Any], names: list[str], layout: Layout, where: str | Path
) -> LazyTensor:
    for name in names:
        if name not in by_name:
            raise WeightsError(f"{where}: {name} is missing beside {names[0]}")
        if by_name[name].dtype.kind != "f":
            raise WeightsError(
                f"{where}: {name} has a type other than float16, float32 and float64"
            )

    # The shape follows from arrays of the stored shapes that repeat one number in memory.
    stored = [by_name[name] for name in names]
    shapes = [tensor.shape for tensor in stored]
    try:
        shape = layout(*(np.broadcast_to(np.float32(0), shape) for shape in shapes)).shape
    except (ValueError, IndexError):
        listed = " and ".join(map(str, shapes))
        raise WeightsError(f"{where}: {names[0]} has the unusable shape {listed}") from None
    return LazyTensor(shape, stored[0].dtype, lambda: layout(*map(np.asarray, stored)))


# --- options, for formats whose files contain none ---


def derived_options(
    tensors: Tensors, char_cnn: Mapping[str, Any], lstm: Mapping[str, Any]
) -> ModelOptions:
    """Return the options of a model that reads characters: sizes from the shapes of its tensors,
    and others of `char_cnn` and `lstm`. Raises: WeightsError if an ELMo cannot have the shapes."""
    characters = tensors.axis_lengths("char_embed")
    filters = [tensors.axis_lengths(name) for name in numbered("CNN/W_cnn_{i}", tensors)]
    n_highway = len(numbered("CNN_high_{i}/W_carry", tensors))

    # The first cell of the forward direction; without a projection, its states have width D.
    cell = CELL.format(k=0, i=0)
    dim = tensors.axis_lengths(f"{cell}/B")["4 D"] // 4
    projection_dim = dim
    if f"{cell}/W_P_0" in tensors:
        projection_dim = tensors.axis_lengths(f"{cell}/W_P_0")["P"]
    n_layers = len(numbered(CELL.format(k=0, i="{i}") + "/W_0", tensors))

    values = {
        "bidirectional": any(name.startswith("RNN_1/") for name in tensors),
        "char_cnn": {
            "embedding": {"dim": characters["E"]},
            "filters": [[lengths["width"], lengths["filters"]] for lengths in filters],
            "n_characters": characters["characters"] + 1,  # with the padding row, as in an export
            "n_highway": n_highway,
            **char_cnn,
        },
        "lstm": {"dim": dim, "projection_dim": projection_dim, "n_layers": n_layers, **lstm},
    }
    try:
        return ModelOptions.from_dict(values)
    except OptionsError as error:
        raise WeightsError(
            f"{tensors.source}: the shapes of its tensors do not fit an ELMo ({error})"
        ) from None


def numbered(template: str, names: Container[str]) -> list[str]:
    """Return the names of a template with `{i}` 0, 1, ... up to the first one that is missing."""
    candidates = (template.replace("{i}", str(i)) for i in count())
    return list(takewhile(names.__contains__, candidates))
