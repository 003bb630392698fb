"""What a stored model's values are read through, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import h5py

from bilm.storage.hdf5 import Held, dataset_names, held, numbers, open_hdf5


class Tensors(Protocol):
    """The tensors of a model by the stored names of `bilm.storage.names`.

    Attributes: `source`, for messages; `paths`, the files that the values are read from; `names`,
    of the tensors, where a name may be one of `names.other_names`; `held`, what the files hold.
    """

    source: str
    paths: tuple[Path, ...]
    names: set[str]

    def held(self) -> Held:
        """Count what the files store, whatever sizes they state."""

    def opened(self) -> AbstractContextManager[Callable[[str], Any]]:
        """Open the files; within, a name gives what has a shape and becomes an array."""


class HDF5Tensors:
    """The datasets of an HDF5 file: see `Tensors`. Raises: WeightsError."""

    def __init__(self, path: str | Path):
        self.paths = (Path(path).absolute(),)  # the program may change its folder
        self.source = str(self.paths[0])
        with open_hdf5(path) as file:
            self.names = dataset_names(file)

    def held(self) -> Held:
        """Count what the file stores."""
        with open_hdf5(self.source) as file:
            return held(file)

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], h5py.Dataset]]:
        """Open the file."""
        with open_hdf5(self.source) as file:
            yield lambda name: numbers(file, name)
