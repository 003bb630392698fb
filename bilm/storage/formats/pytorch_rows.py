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

GATES = (0, 2, 1, 3)  # positions of bilm's gates i, j, f, o among the stored i, f, g, o
Shape = tuple[int, ...]


class Layout(NamedTuple):
    """How the value of a variable follows from the stored tensors.

    Fields:
        shape: the variable's shape, from the tensors' shapes; ValueError if they do not fit.
        value: the variable's value, from an array; from an iterator of two arrays for a kernel.
    """

    shape: Callable[..., Shape]
    value: Callable[..., np.ndarray]


def _filter_shape(shape: Shape) -> Shape:
    n_filters, dim, n_places = shape
    return 1, n_places, dim, n_filters


def _half_shape(shape: Shape) -> Shape:
    (n, rest), *others = divmod(shape[0], 2), *shape[1:]
    if rest or len(others) > 1:
        raise ValueError("not two halves")
    return *others, n


def _bias_shape(shape: Shape) -> Shape:
    (n,) = shape
    return (n - n % 4,)


def _bias(value: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(value, 4)
    return np.concatenate([i, g, f - 1, o])


def _kernel_shape(inputs: Shape, states: Shape) -> Shape:
    n_columns, width = inputs
    if states != inputs or n_columns % 4:
        raise ValueError("not four gates")
    return 2 * width, n_columns


def _kernel(parts: Iterator[np.ndarray]) -> np.ndarray:
    """Return input over recurrent weights, the gates i, f, g, o in bilm's order i, g, f, o.

    The parts are read one after the other into the kernel, which determines the peak of memory.
    """
    stored = next(parts)
    n_columns, width = stored.shape
    dim = n_columns // 4
    kernel: np.ndarray = np.empty((2 * width, n_columns), np.float32)
    with np.errstate(over="ignore"):  # an infinite value is refused later
        for k in range(2):
            for place, gate in enumerate(GATES):
                columns = slice(place * dim, (place + 1) * dim)
                kernel[k * width : (k + 1) * width, columns] = stored[gate * dim :][:dim].T
            stored = next(parts, stored)
    return kernel


PLAIN = Layout(lambda shape: shape, lambda value: value)
TRANSPOSED = Layout(lambda shape: shape[::-1], np.transpose)
FILTER = Layout(_filter_shape, lambda value: value.transpose(2, 1, 0)[None])
TRANSFORM = Layout(_half_shape, lambda value: value[: len(value) // 2].T)
CARRY = Layout(_half_shape, lambda value: -value[len(value) // 2 :].T)
BIAS = Layout(_bias_shape, _bias)
KERNEL = Layout(_kernel_shape, _kernel)


class Row(NamedTuple):
    """One row of a table: a variable and the stored tensors that it is made of.

    The names are templates with `{i}`, the index of a filter or layer, and `{k}` in bilm's and
    `{direction}` in the stored names.
    """

    variable: str
    stored: tuple[str, ...]
    layout: Layout

    def found_in(self, names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the variables of this row, and the stored names of each."""
        first, *others = self.stored
        pattern = re.escape(first).replace(r"\{i\}", "(?P<i>[0-9]+)")
        pattern = pattern.replace(r"\{direction\}", f"(?P<direction>{'|'.join(DIRECTIONS)})")
        for name in names:
            if match := re.fullmatch(pattern, name):
                index = match.groupdict()
                k = DIRECTIONS.index(index.get("direction") or DIRECTIONS[0])
                stored = [name, *(other.format(**index) for other in others)]
                yield self.variable.format(**index, k=k), stored


def lstm_rows(prefix: str = "") -> tuple[Row, ...]:
    """Return the rows of the LSTMs; `prefix` is the name of their module, with a dot."""
    cell, layer = "RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell", prefix + "{direction}_layer_{i}"
    kernel = f"{layer}.input_linearity.weight", f"{layer}.state_linearity.weight"
    return (
        Row(f"{cell}/W_0", kernel, KERNEL),
        Row(f"{cell}/B", (f"{layer}.state_linearity.bias",), BIAS),
        Row(f"{cell}/W_P_0", (f"{layer}.state_projection.weight",), TRANSPOSED),
    )


def encoder_rows(convolution: str, highway: str, projection: str) -> tuple[Row, ...]:
    """Return the rows of the token encoder, given the names of its modules before the index."""
    return (
        Row("CNN/W_cnn_{i}", (convolution + "{i}.weight",), FILTER),
        Row("CNN/b_cnn_{i}", (convolution + "{i}.bias",), PLAIN),
        Row("CNN_high_{i}/W_transform", (highway + "{i}.weight",), TRANSFORM),
        Row("CNN_high_{i}/b_transform", (highway + "{i}.bias",), TRANSFORM),
        Row("CNN_high_{i}/W_carry", (highway + "{i}.weight",), CARRY),
        Row("CNN_high_{i}/b_carry", (highway + "{i}.bias",), CARRY),
        Row("CNN_proj/W_proj", (projection + ".weight",), TRANSPOSED),
        Row("CNN_proj/b_proj", (projection + ".bias",), PLAIN),
    )


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
        parts: state dicts, the rows that are read from each, and the prefix of their names.
    Attributes:
        unused: names of the other tensors, by state dict.
    Raises: WeightsError for a tensor that is missing beside its companion, has a shape that no
        variable can have, or does not contain floating-point numbers.
    """

    def __init__(self, source: str | Path, parts: Sequence[tuple[Stored, Sequence[Row], str]]):
        self.unused: dict[Path, set[str]] = {}
        found: dict[str, LazyTensor] = {}
        for file, rows, prefix in parts:
            unused = set(file.shapes)
            names = {n.removeprefix(prefix): n for n in file.shapes if n.startswith(prefix)}
            for row in rows:
                for variable, stored in row.found_in(names):
                    used = [prefix + name for name in stored]
                    found[variable] = _lazy(file, used, row.layout)
                    unused.difference_update(used)
            self.unused[file.path] = unused
        super().__init__(str(source), (file.path for file, _, _ in parts), found)


def _lazy(source: Stored, names: list[str], layout: Layout) -> LazyTensor:
    """Return a variable of a state dict. Raises: WeightsError."""
    for name in names:
        if name not in source.shapes:
            raise WeightsError(f"{source.path}: {name} is missing beside {names[0]}")
        if source.dtypes[name].kind != "f":
            raise WeightsError(
                f"{source.path}: {name} has a type other than float16, float32 and float64"
            )
    shapes = [source.shapes[name] for name in names]
    try:
        shape = layout.shape(*shapes)
    except (ValueError, IndexError):
        shown = " and ".join(map(str, shapes))
        raise WeightsError(f"{source.path}: {names[0]} has the unusable shape {shown}") from None
    return LazyTensor(shape, source.dtypes[names[0]], partial(_value, source, names, layout))


def _value(source: Stored, names: list[str], layout: Layout) -> np.ndarray:
    parts = map(source.read, names)
    return layout.value(parts if layout is KERNEL else next(parts))
