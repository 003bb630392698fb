"""What the files of a model contain: tensors that are read later, the softmax, learned mixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from bilm.errors import WeightsError
from bilm.storage.hdf5 import datasets_of, numbers, open_hdf5
from bilm.tensors import row_of


class LazyTensor(NamedTuple):
    """A tensor whose values are read when NumPy converts it to an array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read(), dtype)


class Tensors(dict[str, LazyTensor]):
    """The tensors in the files of a model, by the names of `bilm.tensors`; a name that is missing
    raises WeightsError.

    Args:
        source: name of the files, for messages.
        paths: the files that the values are read from.
    """

    def __init__(
        self, source: str | Path, paths: Iterable[Path], by_name: Mapping[str, LazyTensor]
    ):
        super().__init__(by_name)
        self.source = str(source)
        self.paths = tuple(path.absolute() for path in paths)

    def __missing__(self, name: str) -> LazyTensor:
        raise WeightsError(f"{self.source}: {name} is missing")

    def axis_lengths(self, name: str) -> dict[str | int, int]:
        """Return the length of each axis of a tensor, by the axes that `bilm.tensors` declares.
        Raises: WeightsError if it is missing, is empty or has another number of axes."""
        axes, shape = row_of(name).axes, self[name].shape
        if len(shape) != len(axes) or not all(shape):
            declared = ", ".join(map(str, axes))
            raise WeightsError(
                f"{self.source}: {name} has shape {shape}, expected lengths of ({declared})"
            )
        return dict(zip(axes, shape, strict=True))

    @property
    def n_words(self) -> int:
        """The number of rows of the word table `embedding`. Raises: WeightsError."""
        return self.axis_lengths("embedding")["words"]

    def only(self, is_selected: Callable[[str], bool]) -> Tensors:
        """Return the tensors whose names `is_selected` selects."""
        selected = {name: tensor for name, tensor in self.items() if is_selected(name)}
        return type(self)(self.source, self.paths, selected)


class Softmax(NamedTuple):
    """The softmax of a stored model."""

    tensors: Tensors  # contain `softmax/W` and `softmax/b`
    n_words: int  # number of words that it predicts
    words: list[str] | None  # these words by id; None if a vocabulary file lists them


class Mix(NamedTuple):
    """A learned weighting of a biLM's layers: gamma * sum_j softmax(weights)_j * layer_j."""

    weights: np.ndarray  # float32 (layers + 1,), before the softmax
    gamma: float
    # Whether the layers are normalized first, over all positions of the batch including the marks
    # of sentences.
    do_layer_norm: bool = False


def hdf5_tensors(path: str | Path) -> Tensors:
    """Return the datasets of an HDF5 file. Raises: WeightsError if it is damaged, also when a value
    is read, or if a dataset contains neither numbers nor strings."""
    path = Path(path).absolute()  # the working folder may change

    def read(name: str) -> np.ndarray:
        with open_hdf5(path) as file:
            return numbers(file, name)[...]

    by_name = {}
    with open_hdf5(path) as file:
        for name, dataset in datasets_of(file).items():
            if h5py.check_string_dtype(dataset.dtype) is None:
                numbers(file, name)
            by_name[name] = LazyTensor(dataset.shape, dataset.dtype, partial(read, name))
    return Tensors(path, [path], by_name)
