"""The layout that AllenNLP and ELMoForManyLangs share, as a table of bilm's variables and the
tensors of a PyTorch state dict.

The graph is that of bilm with other names. The stored numbers differ in two ways: a highway's gate
passes the input instead of the transform, so its weights are negated; and the forget bias includes
the 1 that bilm adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilm.errors import WeightsError
from bilm.options.model_options import DIRECTIONS
from bilm.storage.formats.base import LazyTensor, LazyTensors
from bilm.storage.formats.pytorch import StateDict
from bilm.tensors import CELL

GATES = (0, 2, 1, 3)  # positions of bilm's gates i, j, f, o among the stored i, f, g, o
Shape = tuple[int, ...]

# --- layouts ---


class Layout(NamedTuple):
    """How the value of a variable follows from the stored tensors.

    Fields:
        shape: the variable's shape, from the tensors' shapes; ValueError if they do not fit.
        value: the variable's value, from an array; from an iterator of two arrays for a kernel.
    """

    shape: Callable[..., Shape]
    value: Callable[..., np.ndarray]


def _transposed_shape(shape: Shape) -> Shape:
    return shape[::-1]


def _filter_shape(shape: Shape) -> Shape:
    n_filters, dim, width = shape
    return 1, width, dim, n_filters


def _filter(stored: np.ndarray) -> np.ndarray:
    """(filters, E, width) -> (1, width, E, filters)."""
    return stored.transpose(2, 1, 0)[None]


def _half_shape(shape: Shape) -> Shape:
    """Return the shape of a transposed half: (2 F, F) -> (F, F), or (2 F,) -> (F,)."""
    if shape[0] % 2 or len(shape) > 2:
        raise ValueError("not two halves")
    return *shape[1:], shape[0] // 2


def _transform(stored: np.ndarray) -> np.ndarray:
    """Return the upper half, transposed: weights or bias of a highway's transform."""
    n_features = len(stored) // 2
    return stored[:n_features].T


def _carry(stored: np.ndarray) -> np.ndarray:
    """Return the lower half, transposed and negated: weights or bias of a highway's gate."""
    n_features = len(stored) // 2
    return -stored[n_features:].T


def _bias_shape(shape: Shape) -> Shape:
    (n,) = shape
    if n % 4:
        raise ValueError("not four gates")
    return shape


def _bias(stored: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(stored, 4)
    return np.concatenate([i, g, f - 1, o])


def _kernel_shape(inputs: Shape, states: Shape) -> Shape:
    """(4 D, P) and (4 D, P) -> (2 P, 4 D)."""
    n_columns, width = inputs
    if states != inputs or n_columns % 4:
        raise ValueError("not four gates")
    return 2 * width, n_columns


def _kernel(stored: Iterator[np.ndarray]) -> np.ndarray:
    """Return input weights over recurrent weights: twice (4 D, P) -> (2 P, 4 D).

    The first array is released before the second is read, because LSTM weights are most of a model.
    """
    weights = next(stored)
    n_columns, width = weights.shape
    kernel: np.ndarray = np.empty((2 * width, n_columns), np.float32)
    _copy_gates(weights, kernel[:width])
    del weights
    _copy_gates(next(stored), kernel[width:])
    return kernel


def _copy_gates(weights: np.ndarray, rows: np.ndarray) -> None:
    """Copy the stored gates i, f, g, o to columns in bilm's order: (4 D, P) -> (P, 4 D)."""
    dim = len(weights) // 4
    with np.errstate(over="ignore"):  # an infinite value is refused later
        for place, gate in enumerate(GATES):
            stored_gate = weights[gate * dim : (gate + 1) * dim]  # (D, P)
            rows[:, place * dim : (place + 1) * dim] = stored_gate.T


PLAIN = Layout(lambda shape: shape, lambda value: value)
TRANSPOSED = Layout(_transposed_shape, np.transpose)
FILTER = Layout(_filter_shape, _filter)
TRANSFORM = Layout(_half_shape, _transform)
CARRY = Layout(_half_shape, _carry)
BIAS = Layout(_bias_shape, _bias)
KERNEL = Layout(_kernel_shape, _kernel)

# --- the table ---


class StoredRow(NamedTuple):
    """One row of a table: a variable and the stored tensors that it is made of.

    The names are templates with `{i}`, the index of a filter or layer, and `{k}` in bilm's and
    `{direction}` in the stored names.
    """

    variable: str
    stored: tuple[str, ...]
    layout: Layout

    def variables_in(self, names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the variables of this row, and the stored names of each."""
        first, *others = self.stored
        pattern = re.escape(first).replace(r"\{i\}", "(?P<i>[0-9]+)")
        pattern = pattern.replace(r"\{direction\}", f"(?P<direction>{'|'.join(DIRECTIONS)})")
        for name in names:
            match = re.fullmatch(pattern, name)
            if match is None:
                continue
            index = match.groupdict()
            k = DIRECTIONS.index(index.get("direction") or DIRECTIONS[0])
            companions = [other.format(**index) for other in others]
            yield self.variable.format(**index, k=k), [name, *companions]


def lstm_rows(prefix: str = "") -> tuple[StoredRow, ...]:
    """Return the rows of the LSTMs; `prefix` is the name of their module, with a dot."""
    layer = prefix + "{direction}_layer_{i}"
    inputs, states = f"{layer}.input_linearity", f"{layer}.state_linearity"
    return (
        StoredRow(f"{CELL}/W_0", (f"{inputs}.weight", f"{states}.weight"), KERNEL),
        StoredRow(f"{CELL}/B", (f"{states}.bias",), BIAS),
        StoredRow(f"{CELL}/W_P_0", (f"{layer}.state_projection.weight",), TRANSPOSED),
    )


def encoder_rows(convolution: str, highway: str, projection: str) -> tuple[StoredRow, ...]:
    """Return the rows of the token encoder, given the names of its modules before the index."""
    return (
        StoredRow("CNN/W_cnn_{i}", (convolution + "{i}.weight",), FILTER),
        StoredRow("CNN/b_cnn_{i}", (convolution + "{i}.bias",), PLAIN),
        StoredRow("CNN_high_{i}/W_transform", (highway + "{i}.weight",), TRANSFORM),
        StoredRow("CNN_high_{i}/b_transform", (highway + "{i}.bias",), TRANSFORM),
        StoredRow("CNN_high_{i}/W_carry", (highway + "{i}.weight",), CARRY),
        StoredRow("CNN_high_{i}/b_carry", (highway + "{i}.bias",), CARRY),
        StoredRow("CNN_proj/W_proj", (projection + ".weight",), TRANSPOSED),
        StoredRow("CNN_proj/b_proj", (projection + ".bias",), PLAIN),
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


class StateDictTensors(LazyTensors):
    """The tensors of a model in state dicts.

    Args:
        source: name of the files, for messages.
        files: state dicts, the rows that are read from each, and the prefix of their names.
    Attributes:
        unused: names of the other tensors, by state dict.
    Raises: WeightsError for a tensor that is missing beside its companion, has a shape that no
        variable can have, or does not contain floating-point numbers.
    """

    def __init__(
        self, source: str | Path, files: Sequence[tuple[Stored, Sequence[StoredRow], str]]
    ):
        self.unused: dict[Path, set[str]] = {}
        by_name: dict[str, LazyTensor] = {}
        for file, rows, prefix in files:
            unused = set(file.shapes)
            names = {n.removeprefix(prefix): n for n in file.shapes if n.startswith(prefix)}
            for row in rows:
                for variable, stored_names in row.variables_in(names):
                    used = [prefix + name for name in stored_names]
                    by_name[variable] = _lazy_tensor(file, used, row.layout)
                    unused.difference_update(used)
            self.unused[file.path] = unused
        super().__init__(str(source), (file.path for file, _, _ in files), by_name)


def _lazy_tensor(file: Stored, names: list[str], layout: Layout) -> LazyTensor:
    """Return a variable of a state dict. Raises: WeightsError."""
    for name in names:
        if name not in file.shapes:
            raise WeightsError(f"{file.path}: {name} is missing beside {names[0]}")
        if file.dtypes[name].kind != "f":
            raise WeightsError(
                f"{file.path}: {name} has a type other than float16, float32 and float64"
            )
    shapes = [file.shapes[name] for name in names]
    try:
        shape = layout.shape(*shapes)
    except (ValueError, IndexError):
        listed = " and ".join(map(str, shapes))
        raise WeightsError(f"{file.path}: {names[0]} has the unusable shape {listed}") from None
    return LazyTensor(shape, file.dtypes[names[0]], partial(_value, file, names, layout))


def _value(file: Stored, names: list[str], layout: Layout) -> np.ndarray:
    stored = map(file.read, names)
    return layout.value(stored if layout is KERNEL else next(stored))
