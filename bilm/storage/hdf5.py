"""Reads untrusted HDF5 files, and writes HDF5 to a disk that may be full. `numbers`, `strings` and
`attribute` do not read values of other files, and reject declared sizes that exceed the file's.
"""

import errno
import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bilm.errors import BilmError, WeightsError
from bilm.support.files import replacing, unusable

MAX_RATIO = 100  # maximum ratio of uncompressed to stored bytes; weights hardly shrink
UNSTORED_BYTES = 1 << 20  # allowed above MAX_RATIO, for small compressed datasets
MAX_ITEMS = 1_000  # groups and datasets of a model's file; the largest known model has 150
# Exceptions that any call of h5py may raise for a damaged file.
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)


@contextmanager
def open_hdf5(path: str | Path) -> Iterator[h5py.File]:
    """Open an HDF5 file. Raises: WeightsError if it is missing or damaged, also in the block."""
    if not Path(path).is_file():
        raise WeightsError(f"{path}: no such file; expected an HDF5 weight file")
    try:
        with to_read(path) as file:
            yield file
    except BilmError:
        raise
    except MemoryError as error:
        raise WeightsError(f"{path}: memory is insufficient, or the file is damaged") from error
    except DAMAGE as error:
        raise WeightsError(unusable(path, f"not a whole HDF5 file ({error})")) from error


def to_read(path: str | os.PathLike) -> h5py.File:
    """Open an HDF5 file for reading, also on a file system without locks. Raises: see `DAMAGE`."""
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        return h5py.File(path, "r", locking=False)


class NewHDF5(h5py.File):
    """An HDF5 file for writing, new (mode `w`) or existing (`a`); a context manager that closes it.
    HDF5 crashes the process when it closes a file after a write has failed. Failures are therefore
    hidden from it: `check` and the end of the block raise the first one, an OSError of the disk.
    """

    def __init__(self, path: str | os.PathLike, mode: str = "w"):
        self._disk = Disk(path, {"w": "w+", "a": "r+"}[mode])
        self.check = self._disk.check
        super().__init__(self._disk, mode)

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._disk.close()
            self.check()


class Disk(io.FileIO):
    """An unbuffered file that keeps the error of the first failed write and drops later ones."""

    error: OSError | None = None

    def check(self) -> None:
        """Raise OSError if a write has failed; call it often, to stop early."""
        if self.error is not None:
            raise self.error

    def write(self, data: Any) -> int:
        """Write all bytes, unless a write has failed."""
        left = memoryview(data).cast("B")
        try:
            while left and self.error is None:  # a write may be partial
                left = left[super().write(left) :]
        except OSError as error:
            self._keep(error)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Change the size."""
        try:
            return super().truncate(size)
        except OSError as error:
            self._keep(error)
            return 0

    def _keep(self, error: OSError) -> None:
        self.error = self.error or OSError(error.errno, os.strerror(error.errno or 0), self.name)


def save_hdf5(
    path: str | Path, values: Mapping[str, np.ndarray], attributes: Mapping[str, str] | None = None
) -> None:
    """Write arrays and attributes by name into one file, whole or not at all."""
    with replacing(path) as temporary, NewHDF5(temporary) as file:
        file.attrs.update(attributes or {})
        for name, value in values.items():
            dtype = h5py.string_dtype() if value.dtype == object else None
            file.create_dataset(name, data=value, dtype=dtype)
            file.check()


def datasets_of(group: h5py.Group) -> dict[str, h5py.Dataset]:
    """Return all datasets below a group by name, without following links. Raises: WeightsError."""
    items: dict[str, Any] = {}

    def add(name: str, item: Any) -> None:
        items[name] = item
        if len(items) > MAX_ITEMS:
            raise WeightsError(
                f"{group.file.filename}: found more than {MAX_ITEMS:,} groups and datasets; "
                "expected the weights of a model"
            )

    group.visititems(add)
    return {name: item for name, item in items.items() if isinstance(item, h5py.Dataset)}


def numbers(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset of real numbers, whose values are not read yet. Raises: WeightsError."""
    dataset = _dataset(file, name)
    if dataset.shape is None or dataset.dtype.kind not in "fiu":
        kind = "nothing" if dataset.shape is None else f"values of type {dataset.dtype}"
        raise WeightsError(f"{file.filename}: {name} contains {kind}, expected numbers")
    _check_stored(dataset, name)
    return dataset


def strings(file: h5py.File, name: str) -> list[str]:
    """Read a dataset of UTF-8 strings, shape (n,). Raises: WeightsError as `numbers` does."""
    dataset = _dataset(file, name)
    is_list = dataset.shape is not None and dataset.ndim == 1
    if not is_list or h5py.check_string_dtype(dataset.dtype) is None:
        raise WeightsError(f"{file.filename}: `{name}` is not a dataset of strings with one axis")
    _check_stored(dataset, name)
    try:
        return [value.decode() for value in dataset[...].tolist()]
    except (UnicodeDecodeError, AttributeError) as error:
        raise WeightsError(f"{file.filename}: `{name}` is not UTF-8") from error


def attribute(file: h5py.File, name: str) -> str | None:
    """Return a string attribute of the file, None if it is missing."""
    if name not in file.attrs or file.attrs.get_id(name).shape != ():
        return None
    value = file.attrs[name]
    return value if isinstance(value, str) else None


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset, without following links."""
    item: Any = file
    for part in name.split("/"):
        is_group = isinstance(item, h5py.Group)
        is_inside = is_group and isinstance(item.get(part, getlink=True), h5py.HardLink)
        item = item[part] if is_inside else None
    if not isinstance(item, h5py.Dataset):
        raise WeightsError(f"{file.filename}: the dataset `{name}` is missing")
    return item


def _check_stored(dataset: h5py.Dataset, name: str) -> None:
    """Raise WeightsError unless the file contains the values that a dataset declares."""
    where = f"{dataset.file.filename}: {name}"
    if dataset.is_virtual or dataset.external:
        raise WeightsError(f"{where} stores its values in another file")

    # What reading allocates: all values, or a chunk, which is decompressed as a whole.
    n_declared = dataset.nbytes
    if dataset.chunks:
        n_declared = max(n_declared, math.prod(dataset.chunks) * dataset.dtype.itemsize)

    # What the file contains, and what may become of it.
    n_stored = min(dataset.id.get_storage_size(), Path(dataset.file.filename).stat().st_size)
    is_filtered = dataset.id.get_create_plist().get_nfilters() > 0  # compressed or converted
    n_readable = n_stored * MAX_RATIO if is_filtered else n_stored
    if n_declared > n_readable + UNSTORED_BYTES:
        raise WeightsError(f"{where} declares {n_declared:,} bytes, more than the file can contain")
    n_required = 1 if is_filtered else dataset.nbytes
    if dataset.size and n_stored < n_required:
        raise WeightsError(f"{where} contains {dataset.nbytes:,} bytes that were never written")
