"""The layout that AllenNLP and ELMoForManyLangs share, as a table of bilm's variables and the
tensors of a PyTorch state dict.

The graph is that of bilm with other names. The stored numbers differ in two ways: a highway's gate
passes the input instead of the transform, so its weights are negated; and the forget bias includes
the 1 that bilm adds.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilm.errors import WeightsError
from bilm.options.model_options import DIRECTIONS
from bilm.storage.formats.base import LazyTensor, LazyTensors
from bilm.storage.formats.pytorch import StateDict
from bilm.tensors import CELL, template_pattern

GATES = (0, 2, 1, 3)  # positions of bilm's gates i, j, f, o among the stored i, f, g, o
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
    """Return the biases of an LSTM's gates: (4 D,)."""
    i, f, g, o = np.split(stored, 4)
    return np.concatenate([i, g, f - 1, o])


def kernel(inputs: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return input weights over recurrent weights: (4 D, P) and (4 D, P) -> (2 P, 4 D)."""
    if inputs.shape != states.shape:
        raise ValueError("input and recurrent weights have different shapes")
    weights: np.ndarray = np.empty((2 * inputs.shape[1], len(inputs)), np.float32)
    rows = np.split(weights, 2)  # P, 4 D
    for stored, part in zip((inputs, states), rows, strict=True):
        gates = np.split(stored, 4)  # D, P
        columns = np.split(part, 4, axis=1)  # P, D
        with np.errstate(over="ignore"):  # an infinite value is refused later
            for place, gate in enumerate(GATES):
                columns[place][...] = gates[gate].T
    return weights


# --- the table ---


class StoredRow(NamedTuple):
    """One row of a table: a variable and the stored tensors that it is made of, by default the
    same tensor. The names are templates with `{i}`, the index of a filter or layer."""

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


# --- the tensors of state dicts ---


class LoadedStateDict:
    """A state dict in memory; `path` is its name in messages."""

    def __init__(self, path: str, arrays: Mapping[str, np.ndarray]):
        self.path = Path(path)
        self.shapes = {name: value.shape for name, value in arrays.items()}
        self.dtypes = {name: value.dtype for name, value in arrays.items()}
        self.read = arrays.__getitem__


Stored = StateDict | LoadedStateDict


def state_dict_tensors(
    source: str | Path, files: Sequence[tuple[Stored, Sequence[StoredRow], str]]
) -> LazyTensors:
    """Return the tensors of a model in state dicts, given for each the rows that are read from it
    and the prefix of their names; `source` is the name of all files, for messages. Raises:
    WeightsError for a tensor that is missing beside its companion, has a shape that no variable can
    have, or does not contain floating-point numbers."""
    by_name: dict[str, LazyTensor] = {}
    for file, rows, prefix in files:
        inside = [name.removeprefix(prefix) for name in file.shapes if name.startswith(prefix)]
        for row in rows:
            pattern = template_pattern(row.stored[0])
            for match in filter(None, map(pattern.fullmatch, inside)):
                index = match.groupdict()
                names = [prefix + name.format(**index) for name in row.stored]
                by_name[row.variable.format(**index)] = _lazy_tensor(file, names, row.layout)
    return LazyTensors(str(source), [file.path for file, _, _ in files], by_name)


def _lazy_tensor(file: Stored, names: list[str], layout: Layout) -> LazyTensor:
    """Return a variable of a state dict. Raises: WeightsError."""
    for name in names:
        if name not in file.shapes:
            raise WeightsError(f"{file.path}: {name} is missing beside {names[0]}")
        if file.dtypes[name].kind != "f":
            raise WeightsError(
                f"{file.path}: {name} has a type other than float16, float32 and float64"
            )

    # The shape follows from arrays of the stored shapes that repeat one number in memory.
    shapes = [file.shapes[name] for name in names]
    try:
        shape = layout(*(np.broadcast_to(np.float32(0), shape) for shape in shapes)).shape
    except (ValueError, IndexError):
        listed = " and ".join(map(str, shapes))
        raise WeightsError(f"{file.path}: {names[0]} has the unusable shape {listed}") from None
    return LazyTensor(shape, file.dtypes[names[0]], lambda: layout(*map(file.read, names)))
