"""HDF5 files: reading those that may come from anywhere, writing on a disk that may be full."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from bilm.errors import BilmError, WeightsError
from bilm.files import replacing

MAX_RATIO = 1000  # of a dataset's stated size to that of its file; gzip packs zeros so
# What h5py makes of a damaged file, at whatever call it stumbles over it.
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading; damage that the block finds is an error of the file.

    Raises: WeightsError if it is missing, cut short, damaged or no HDF5 file.
    """
    if not Path(path).is_file():
        raise WeightsError(f"{path}: no such file; expected an HDF5 weight file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except BilmError:
        raise
    except MemoryError as error:
        raise WeightsError(f"{path}: asks for more memory than there is, or is damaged") from error
    except DAMAGE as error:
        raise WeightsError(f"{path}: not a whole HDF5 file ({error})") from error


class NewHDF5(h5py.File):
    """An HDF5 file that is written; a context manager that closes it.

    HDF5 crashes the process when it closes a file after a write has failed. So it is never told
    of a failure: the first one is kept and raised by `check` and at the end of the block.

    Args:
        path: the file, best a temporary one.
        mode: `w` for a new file, `a` to add to the file.
    Raises: OSError with the `errno` of the disk.
    """

    def __init__(self, path: str | os.PathLike, mode: str = "w"):
        self._disk = _Disk(path, {"w": "w+", "a": "r+"}[mode])
        super().__init__(self._disk, mode)

    def check(self) -> None:
        """Raise OSError if a write has failed so far; call it often, to stop early."""
        if self._disk.error is not None:
            raise self._disk.error

    def __exit__(self, *error) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._disk.close()
            self.check()


class _Disk(io.FileIO):
    """An unbuffered file that keeps the error of the first failed write and drops later ones."""

    error: OSError | None = None

    def write(self, data) -> int:
        left = memoryview(data).cast("B")
        try:
            while left and self.error is None:  # the disk may take a part
                left = left[super().write(left) :]
        except OSError as error:
            self._keep(error)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._keep(error)
            return 0

    def _keep(self, error: OSError) -> None:
        self.error = self.error or OSError(error.errno, os.strerror(error.errno), self.name)


def save_hdf5(path: str | Path, values: dict[str, np.ndarray]) -> None:
    """Write arrays by name into one file, whole or not at all.

    Raises: OSError, naming `path`, if it cannot be written.
    """
    with replacing(path) as temporary, NewHDF5(temporary) as file:
        for name, value in values.items():
            dtype = h5py.string_dtype() if value.dtype == object else None
            file.create_dataset(name, data=value, dtype=dtype)
            file.check()


def dataset_names(file: h5py.Group) -> set[str]:
    """Give the names of all datasets below a group. Links to other places are not followed."""
    names = set()
    file.visititems(lambda name, item: names.add(name) if isinstance(item, h5py.Dataset) else None)
    return names


def numbers(file: h5py.File, name: str) -> h5py.Dataset:
    """Give a dataset of real numbers; its values are not read yet.

    Raises: WeightsError if it holds anything else, if its values lie in another file, or if it
        states a size that the file cannot hold.
    """
    found = file[name]
    if not isinstance(found, h5py.Dataset):
        raise WeightsError(f"{file.filename}: {name} is a group, expected a dataset")
    if found.shape is None or found.dtype.kind not in "fiu":
        kind = "nothing" if found.shape is None else f"values of type {found.dtype}"
        raise WeightsError(f"{file.filename}: {name} holds {kind}, expected numbers")
    if found.is_virtual or found.external:
        raise WeightsError(f"{file.filename}: {name} has its values in another file")
    room = MAX_RATIO * Path(file.filename).stat().st_size
    if found.nbytes > room:
        raise WeightsError(
            f"{file.filename}: {name} states {found.nbytes:,} bytes, more than the file can hold"
        )
    return found
