"""PyTorch's state dicts: tensors by name, whose values are read when they are used.

Two formats are supported: that of PyTorch before 1.6, pickles followed by raw numbers, and the ZIP
archive of 1.6 and later, whose members are not compressed.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.errors import WeightsError
from bilm.storage.formats.pickles import MAX_BYTES, Storage, Tensor, read_pickle

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
ZIP_MAGIC = b"PK\x03\x04"
TAR_MAGIC, TAR_PLACE = b"ustar", 257
MAX_TENSORS = 10_000
PIECE_BYTES = 1 << 20
ZIP_DAMAGE = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)


class StateDict:
    """The tensors of a PyTorch file by name; no value stays in memory.

    Args:
        path: the file, which must not change.
    Attributes: `shapes` and `dtypes` of the tensors, by name.
    Raises: WeightsError if it is not a whole state dict in one of the two formats, or contains
        other objects.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        try:
            self._tensors, self._values = _open(self.path)
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self.dtypes = {k: np.dtype(tensor.storage.dtype) for k, tensor in self._tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """Return the values of a tensor in their stored type."""
        tensor = self._tensors[name]
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, tensor.storage.dtype)
        try:
            values = self._values(tensor.storage)[tensor.offset :]
        except (*ZIP_DAMAGE, OSError) as error:
            raise WeightsError(f"{self.path}: {name} cannot be read: {error}") from error
        # `pickles` has checked that the last number lies in the storage.
        strides = [stride * values.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(values, tensor.shape, strides, writeable=False)

    def n_numbers(self) -> int:
        """Return the number of values in all tensors."""
        return sum(math.prod(shape) for shape in self.shapes.values())


class _Opened(NamedTuple):
    """The tensors of a file, and the function that reads a storage, one axis."""

    tensors: dict[str, Tensor]
    values: Callable[[Storage], np.ndarray]


def _open(path: Path) -> _Opened:
    with open(path, "rb") as file:
        start = file.read(TAR_PLACE + len(TAR_MAGIC))
    if start.startswith(LEGACY_MAGIC):
        return _open_legacy(path)
    if start.startswith(ZIP_MAGIC):
        return _open_zip(path)
    what = "not a whole state dict of PyTorch"
    if start[TAR_PLACE:] == TAR_MAGIC:
        what = "a tar archive of PyTorch before 1.0; load it in PyTorch and save it again"
    raise WeightsError(f"{path}: {what}")


def _open_legacy(path: Path) -> _Opened:
    places: dict[str, tuple[Storage, int]] = {}
    with open(path, "rb") as file:

        def following() -> Any:
            start = file.tell()
            value, n_bytes = read_pickle(file.read(MAX_BYTES), str(path))
            file.seek(start + n_bytes)
            return value

        following()  # the magic number
        version, machine, found, keys = (following() for _ in range(4))
        if version != LEGACY_VERSION:
            raise WeightsError(f"{path}: a state dict of an unknown version of PyTorch's format")
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise WeightsError(f"{path}: not from a little-endian machine")
        tensors = _checked(found, path)
        storages = _storages(tensors, path)
        if not isinstance(keys, list) or {k for k in keys if isinstance(k, str)} != set(storages):
            raise WeightsError(f"{path}: the listed storages differ from those of its tensors")
        place, n_bytes = file.tell(), os.fstat(file.fileno()).st_size
        for key in keys:
            storage = storages[key]
            file.seek(place)
            count = int.from_bytes(file.read(8), "little", signed=True)
            start, place = place + 8, place + 8 + storage.size * np.dtype(storage.dtype).itemsize
            if count != storage.size or place > n_bytes or key in places:
                raise WeightsError(
                    f"{path}: cut short or damaged: {storage.size:,} numbers of a storage are "
                    f"expected at byte {start:,} of {n_bytes:,}, found {count:,}"
                )
            places[key] = storage, start

    def values(storage: Storage) -> np.ndarray:
        found = np.fromfile(path, storage.dtype, storage.size, offset=places[storage.key][1])
        if len(found) != storage.size:
            raise WeightsError(f"{path}: cut short")
        return found

    return _Opened(tensors, values)


def _open_zip(path: Path) -> _Opened:
    try:
        with zipfile.ZipFile(path) as file:
            members = {member.filename: member for member in file.infolist()}
            found = [name for name in members if name.endswith("/data.pkl")]
            if len(found) != 1 or found[0].count("/") != 1:
                raise WeightsError(f"{path}: a ZIP archive, but not a state dict of PyTorch")
            root = found[0].removesuffix("data.pkl")
            _check_order(file, members.get(f"{root}byteorder"), path)
            data = _content(file, members[found[0]], MAX_BYTES, path)
            tensors = _checked(read_pickle(data, str(path))[0], path)
            _check_members(members, root, _storages(tensors, path), path)
    except ZIP_DAMAGE as error:
        raise WeightsError(f"{path}: cut short or damaged: {error}") from error

    def values(storage: Storage) -> np.ndarray:
        place = 0
        found: np.ndarray = np.empty(storage.size, np.dtype(storage.dtype))
        filled: np.ndarray = found.view(np.uint8)
        # Read in pieces: reading a member at once would take its size a second time.
        with zipfile.ZipFile(path) as file, file.open(f"{root}data/{storage.key}") as member:
            while piece := member.read(min(PIECE_BYTES, len(filled) - place)):
                filled[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
                place += len(piece)  # at the member's end its CRC is checked
        if place != len(filled):
            raise WeightsError(f"{path}: cut short")
        return found

    return _Opened(tensors, values)


def _check_order(file: zipfile.ZipFile, member: zipfile.ZipInfo | None, path: Path) -> None:
    if member is not None:
        order = _content(file, member, 16, path)
        if order != b"little":
            raise WeightsError(f"{path}: its byte order is {order!r}, expected b'little'")


def _content(file: zipfile.ZipFile, member: zipfile.ZipInfo, limit: int, path: Path) -> bytes:
    _check_stored(member, path)
    if member.file_size > limit:
        raise WeightsError(
            f"{path}: {member.filename} has {member.file_size:,} bytes, expected at most {limit:,}"
        )
    return file.read(member)


def _check_stored(member: zipfile.ZipInfo, path: Path) -> None:
    is_stored = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1
    if not is_stored or member.file_size != member.compress_size:
        raise WeightsError(
            f"{path}: {member.filename} is compressed or encrypted; PyTorch stores it uncompressed"
        )


def _check_members(
    members: dict[str, zipfile.ZipInfo], root: str, storages: dict[str, Storage], path: Path
) -> None:
    """Check that each storage exists and is complete, and that they do not share bytes."""
    n_bytes = 0
    for key, storage in storages.items():
        member = members.get(f"{root}data/{key}")
        if member is None:
            raise WeightsError(f"{path}: the numbers {root}data/{key!a} are missing")
        _check_stored(member, path)
        expected = storage.size * np.dtype(storage.dtype).itemsize
        if member.file_size != expected:
            raise WeightsError(
                f"{path}: {member.filename} has {member.file_size:,} bytes, expected {expected:,}"
            )
        n_bytes += expected
    if n_bytes > os.stat(path).st_size:
        raise WeightsError(f"{path}: its members declare more bytes than the file contains")


def _checked(found: object, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a state dict by name. Raises: WeightsError if it is anything else."""
    if not isinstance(found, dict) or not found:
        raise WeightsError(f"{path}: contains no tensors by name; expected a state dict of PyTorch")
    for name, value in found.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise WeightsError(f"{path}: {ascii(name)[:60]} is of type {kind}, expected a tensor")
    if len(found) > MAX_TENSORS:
        raise WeightsError(f"{path}: {len(found):,} tensors, expected at most {MAX_TENSORS:,}")
    return found


def _storages(tensors: dict[str, Tensor], path: Path) -> dict[str, Storage]:
    storages: dict[str, Storage] = {}
    for tensor in tensors.values():
        storage = tensor.storage
        if storages.setdefault(storage.key, storage) != storage:
            raise WeightsError(f"{path}: two storages have the key {ascii(storage.key)[:60]}")
    return storages
