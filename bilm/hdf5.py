"""HDF5 files that may come from anywhere: what is damaged ends in an error that names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from bilm.errors import BilmError, WeightsError
from bilm.files import SWAPPED, is_json_object, replacing

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
        if is_json_object(path):
            raise WeightsError(f"{path}: JSON, expected an HDF5 file of weights; {SWAPPED}")
        with h5py.File(path, "r") as file:
            yield file
    except BilmError:
        raise
    except MemoryError as error:
        raise WeightsError(f"{path}: asks for more memory than there is, or is damaged") from error
    except DAMAGE as error:
        raise WeightsError(f"{path}: not a whole HDF5 file ({error})") from error


def save_hdf5(path: str | Path, values: dict[str, np.ndarray]) -> None:
    """Write arrays by name, beside the file first and then renamed into place."""
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, value in values.items():
            if value.dtype == object:
                file.create_dataset(name, data=value, dtype=h5py.string_dtype())
            else:
                file.create_dataset(name, data=value)


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
