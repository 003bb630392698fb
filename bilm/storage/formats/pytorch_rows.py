"""The layout that AllenNLP and ELMoForManyLangs share, as a table from bilm's variables to the
tensors of a PyTorch state dict.

The graph is that of bilm with other names. The stored numbers differ in two ways: a highway's gate
passes the input instead of the transform, so its weights are negated; and the forget bias includes
the 1 that bilm adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilm.errors import WeightsError
from bilm.options.model_options import DIRECTIONS, LstmOptions
from bilm.storage.formats.base import LazyTensor
from bilm.storage.formats.pytorch import StateDict
from bilm.storage.hdf5 import Held

GATES = (0, 2, 1, 3)  # positions of bilm's gates i, j, f, o among the stored i, f, g, o
Convert = Callable[[np.ndarray], np.ndarray]


class Row(NamedTuple):
    """One row of the table of names: a variable and the stored tensors that it is made of.

    Fields:
        variable: bilm's name.
        stored: the names in the state dict; two of them only for an LSTM's kernel.
        stored_shape: the shape of each.
        shape: shape of the variable.
        convert: turns the stored tensor into the variable's value; None for an LSTM's kernel.
    """

    variable: str
    stored: tuple[str, ...]
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]
    convert: Convert | None


def plain_row(variable: str, stored: str, shape: tuple[int, ...]) -> Row:
    """Return the row of a variable that is stored unchanged."""
    return Row(variable, (stored,), shape, shape, np.asarray)


def cnn_rows(
    filters: tuple[tuple[int, int], ...], n_highway: int, dim: int, convolution: str, highway: str
) -> Iterator[Row]:
    """Yield the rows of the filters and of the highway layers.

    Args:
        filters: pairs (width, number).
        dim: width of the character embedding.
        convolution, highway: names of the modules, to which the index is appended.
    """
    n = sum(number for _, number in filters)
    for i, (n_places, n_filters) in enumerate(filters):
        shapes = (n_filters, dim, n_places), (1, n_places, dim, n_filters)
        yield Row(f"CNN/W_cnn_{i}", (f"{convolution}{i}.weight",), *shapes, _convolution)
        yield plain_row(f"CNN/b_cnn_{i}", f"{convolution}{i}.bias", (n_filters,))
    for i in range(n_highway):
        name, stored = f"CNN_high_{i}", f"{highway}{i}"
        for part, convert in (("transform", _transform), ("carry", _carry)):
            weight = f"{stored}.weight"
            yield Row(f"{name}/W_{part}", (weight,), (2 * n, n), (n, n), convert)
            yield Row(f"{name}/b_{part}", (f"{stored}.bias",), (2 * n,), (n,), convert)


def projection_rows(n: int, width: int, stored: str) -> Iterator[Row]:
    """Yield the rows of the projection of `n` features to the `width` of a token vector."""
    weight = f"{stored}.weight"
    yield Row("CNN_proj/W_proj", (weight,), (width, n), (n, width), np.transpose)
    yield plain_row("CNN_proj/b_proj", f"{stored}.bias", (width,))


def lstm_rows(
    lstm: LstmOptions, directions: tuple[str, ...] = DIRECTIONS, prefix: str = ""
) -> Iterator[Row]:
    """Yield the rows of the LSTMs; `prefix` is the name of their module, with a dot."""
    dim, width = lstm.dim, lstm.projection_dim
    for k, direction in enumerate(directions):
        for i in range(lstm.n_layers):
            name = f"RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            layer = f"{prefix}{direction}_layer_{i}"
            kernels = f"{layer}.input_linearity.weight", f"{layer}.state_linearity.weight"
            yield Row(f"{name}/W_0", kernels, (4 * dim, width), (2 * width, 4 * dim), None)
            bias, projection = f"{layer}.state_linearity.bias", f"{layer}.state_projection.weight"
            yield Row(f"{name}/B", (bias,), (4 * dim,), (4 * dim,), _bias)
            shapes = (width, dim), (dim, width)
            yield Row(f"{name}/W_P_0", (projection,), *shapes, np.transpose)


class LoadedStateDict:
    """A state dict in memory, with the attributes of `StateDict` that rows need.

    Args:
        source: its name, for messages.
        arrays: values by name.
    """

    def __init__(self, source: str, arrays: Mapping[str, np.ndarray]):
        self.path = source
        self.shapes = {name: value.shape for name, value in arrays.items()}
        self.dtypes = {name: value.dtype for name, value in arrays.items()}
        self.read = arrays.__getitem__


class LoadedTensors:
    """See `bilm.storage.formats.base.Tensors`; of a state dict in memory.

    Args:
        source: the state dict.
        rows: the rows that are read.
        required_by: verb phrase for messages, such as "the options require".
    Raises: WeightsError for a tensor that is missing, has another shape or does not contain
        floating-point numbers.
    """

    paths: tuple[Path, ...] = ()

    def __init__(self, source: LoadedStateDict, rows: Iterable[Row], required_by: str):
        self.source = source.path
        self._found = {row.variable: _lazy(source, row, required_by) for row in rows}
        self.names = set(self._found)

    def held(self) -> Held:
        """Count the tensors and their numbers."""
        return Held(len(self._found), sum(math.prod(each.shape) for each in self._found.values()))

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], LazyTensor]]:
        """Yield the function that returns a tensor."""
        yield self._found.__getitem__


class StateDictTensors:
    """See `bilm.storage.formats.base.Tensors`.

    Args:
        source: name of the files, for messages.
        parts: state dicts, and the rows that are read from each.
        required_by: verb phrase for messages, such as "the options require".
    Attributes: `unused`, the names of the other tensors by file, for files that contain any.
    Raises: WeightsError for a tensor that is missing, has another shape or does not contain
        floating-point numbers, or if tensors overlap in a file.
    """

    def __init__(
        self, source: str, parts: Sequence[tuple[StateDict, Iterable[Row]]], required_by: str
    ):
        self.source, self.unused = source, {}
        self.paths: tuple[Path, ...] = tuple(file.path for file, _ in parts)
        self._found: dict[str, LazyTensor] = {}
        n_tensors = n_numbers = 0
        for file, rows in parts:
            unused, n_bytes = set(file.shapes), 0
            for row in rows:
                self._found[row.variable] = _lazy(file, row, required_by)
                # Weight and bias of a highway layer contain two variables each.
                for name in unused.intersection(row.stored):
                    n_bytes += math.prod(file.shapes[name]) * file.dtypes[name].itemsize
                unused.difference_update(row.stored)
            if n_bytes > file.path.stat().st_size:
                raise WeightsError(
                    f"{file.path}: its tensors overlap: they have {n_bytes:,} bytes, more than the "
                    "file"
                )
            if unused:
                self.unused[file.path] = unused
            n_tensors += len(file.shapes)
            n_numbers += sum(map(math.prod, file.shapes.values()))
        self.names = set(self._found)
        self._held = Held(n_tensors, n_numbers)

    def held(self) -> Held:
        """Count the tensors of the files and their numbers."""
        return self._held

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], LazyTensor]]:
        """Yield the function that returns a tensor; each one opens its file when it is read."""
        yield self._found.__getitem__


def _lazy(source: StateDict | LoadedStateDict, row: Row, required_by: str) -> LazyTensor:
    """Return a variable of a state dict. Raises: WeightsError."""
    for name in row.stored:
        found = source.shapes.get(name)
        if found != row.stored_shape:
            what = "is missing" if found is None else f"has shape {found}"
            raise WeightsError(
                f"{source.path}: {name} {what}, {required_by} shape {row.stored_shape}"
            )
        if source.dtypes[name].kind != "f":
            raise WeightsError(
                f"{source.path}: {name} has a type other than float16, float32 and float64"
            )
    return LazyTensor(row.shape, source.dtypes[row.stored[0]], partial(_value, source, row))


def _value(source: StateDict | LoadedStateDict, row: Row) -> np.ndarray:
    if row.convert is None:
        return _kernel(source, row)
    return row.convert(source.read(row.stored[0]))


def _convolution(value: np.ndarray) -> np.ndarray:
    return value.transpose(2, 1, 0)[None]


def _transform(value: np.ndarray) -> np.ndarray:
    return value[: len(value) // 2].T


def _carry(value: np.ndarray) -> np.ndarray:
    return -value[len(value) // 2 :].T


def _kernel(source: StateDict | LoadedStateDict, row: Row) -> np.ndarray:
    """Return input over recurrent weights, the gates i, f, g, o in bilm's order i, g, f, o.

    The kernel is filled in place: it is the largest tensor and determines the peak of memory.
    """
    n_columns, width = row.stored_shape
    dim = n_columns // 4
    kernel: np.ndarray = np.empty(row.shape, np.float32)
    with np.errstate(over="ignore"):  # an infinite value is refused later
        for k, name in enumerate(row.stored):
            stored = source.read(name)
            for place, gate in enumerate(GATES):
                columns = slice(place * dim, (place + 1) * dim)
                kernel[k * width : (k + 1) * width, columns] = stored[gate * dim :][:dim].T
    return kernel


def _bias(value: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(value, 4)
    return np.concatenate([i, g, f - 1, o])
