"""PyTorch's state dicts, read without PyTorch: tensors by name, whose values are read when used.

Two formats are supported: that of PyTorch before 1.6, pickles followed by raw numbers, and the ZIP
archive of 1.6 and later, whose members are not compressed.

A pickle is a program for a stack machine and may call any function. The machine of this module
implements the few instructions that state dicts contain. It builds strings, numbers, containers and
descriptions of tensors, and cannot call anything else.
"""

from __future__ import annotations

import math
import os
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.errors import WeightsError

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
ZIP_MAGIC = b"PK\x03\x04"
TAR_MAGIC, TAR_PLACE = b"ustar", 257
MAX_TENSORS = 10_000
PIECE_BYTES = 1 << 20
ZIP_DAMAGE = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)

MAX_PICKLE_BYTES = 1 << 20  # a state dict needs about 150 bytes per tensor
MAX_SHOWN = 60  # maximum number of characters of a foreign name in a message
MAX_AXES, MAX_COUNT = 8, 1 << 62  # limits on axes, and on sizes, strides and offset, of a tensor
STORAGES = {
    f"{module} {kind}Storage": dtype
    for module in ("torch", "torch.cuda")
    for kind, dtype in {"Float": "<f4", "Double": "<f8", "Half": "<f2"}.items()
}
# Types of tensors that a model may contain beside its weights. NumPy has no bfloat16, so these
# numbers are described as integers of the same size.
OTHER_STORAGES = {
    f"{module} {kind}Storage": dtype
    for module in ("torch", "torch.cuda")
    for kind, dtype in {
        "Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1", "Byte": "u1", "Bool": "?",
        "BFloat16": "<u2",
    }.items()
}  # fmt: skip
ORDERED_DICT = "collections OrderedDict"
REBUILDERS = {"torch._utils _rebuild_tensor": (4, 4), "torch._utils _rebuild_tensor_v2": (6, 7)}


class Global(NamedTuple):
    """The name of a function or class that a pickle refers to."""

    name: str


class Storage(NamedTuple):
    """A one-dimensional array that tensors share: NumPy dtype, key in the file, number of
    values."""

    dtype: str
    key: str
    size: int

    @property
    def n_bytes(self) -> int:
        """Size of its values."""
        return self.size * np.dtype(self.dtype).itemsize


class Tensor(NamedTuple):
    """The location of a tensor in its storage; `offset` and `strides` count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


Opened = tuple[dict[str, Tensor], Callable[[Storage], np.ndarray]]  # tensors, reader of a storage


class StateDict:
    """The tensors of a PyTorch file by name; no value stays in memory.

    Args:
        path: the file, which must not change.
        other_types: whether tensors of other types than float16, float32 and float64 are allowed.
    Attributes: `shapes` and `dtypes` of the tensors, by name.
    Raises: WeightsError if it is not a whole state dict in one of the two formats, or contains
        other objects.
    """

    def __init__(self, path: str | Path, other_types: bool = False):
        self.path = Path(path).absolute()
        storages = STORAGES | OTHER_STORAGES if other_types else STORAGES
        try:
            self._tensors, self._values = _open(self.path, storages)
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
        # `_Machine` has checked that the last number lies in the storage.
        strides = [stride * values.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(values, tensor.shape, strides, writeable=False)


def _open(path: Path, types: dict[str, str]) -> Opened:
    with open(path, "rb") as file:
        start = file.read(TAR_PLACE + len(TAR_MAGIC))
    if start.startswith(LEGACY_MAGIC):
        return _open_legacy(path, types)
    if start.startswith(ZIP_MAGIC):
        return _open_zip(path, types)
    what = "not a whole state dict of PyTorch"
    if start[TAR_PLACE:] == TAR_MAGIC:
        what = "a tar archive of PyTorch before 1.0; load it in PyTorch and save it again"
    raise WeightsError(f"{path}: {what}")


def _open_legacy(path: Path, types: dict[str, str]) -> Opened:
    places: dict[str, int] = {}
    with open(path, "rb") as file:

        def following() -> Any:
            start = file.tell()
            value, n_bytes = read_pickle(file.read(MAX_PICKLE_BYTES), path, types)
            file.seek(start + n_bytes)
            return value

        following()  # the magic number
        version, machine, found, keys = (following() for _ in range(4))
        if version != LEGACY_VERSION:
            raise WeightsError(f"{path}: a state dict of an unknown version of PyTorch's format")
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise WeightsError(f"{path}: not from a little-endian machine")
        tensors, storages = _checked(found, path)
        if not isinstance(keys, list) or {k for k in keys if isinstance(k, str)} != set(storages):
            raise WeightsError(f"{path}: the list of storages does not match the tensors")
        place, n_bytes = file.tell(), os.fstat(file.fileno()).st_size
        for key in keys:
            storage = storages[key]
            file.seek(place)
            count = int.from_bytes(file.read(8), "little", signed=True)
            start, place = place + 8, place + 8 + storage.n_bytes
            if count != storage.size or place > n_bytes or key in places:
                raise WeightsError(
                    f"{path}: truncated or damaged: {storage.size:,} numbers of a storage are "
                    f"expected at byte {start:,} of {n_bytes:,}, found {count:,}"
                )
            places[key] = start

    def values(storage: Storage) -> np.ndarray:
        found = np.fromfile(path, storage.dtype, storage.size, offset=places[storage.key])
        if len(found) != storage.size:
            raise WeightsError(f"{path}: truncated")
        return found

    return tensors, values


def _open_zip(path: Path, types: dict[str, str]) -> Opened:
    try:
        with zipfile.ZipFile(path) as file:
            members = {member.filename: member for member in file.infolist()}
            found = [name for name in members if name.endswith("/data.pkl")]
            if len(found) != 1 or found[0].count("/") != 1:
                raise WeightsError(f"{path}: a ZIP archive, but not a state dict of PyTorch")
            root = found[0].removesuffix("data.pkl")
            if (order := members.get(f"{root}byteorder")) is not None:
                found_order = _content(file, order, 16, path)
                if found_order != b"little":
                    raise WeightsError(
                        f"{path}: its byte order is {found_order!r}, expected b'little'"
                    )
            data = _content(file, members[found[0]], MAX_PICKLE_BYTES, path)
            tensors, storages = _checked(read_pickle(data, path, types)[0], path)
            _check_members(members, root, storages, path)
    except ZIP_DAMAGE as error:
        raise WeightsError(f"{path}: truncated or damaged: {error}") from error

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
            raise WeightsError(f"{path}: truncated")
        return found

    return tensors, values


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
    for key, storage in storages.items():
        member = members.get(f"{root}data/{key}")
        if member is None:
            raise WeightsError(f"{path}: the numbers {root}data/{key!a} are missing")
        _check_stored(member, path)
        if member.file_size != storage.n_bytes:
            raise WeightsError(
                f"{path}: {member.filename} has {member.file_size:,} bytes, expected "
                f"{storage.n_bytes:,}"
            )
    if sum(storage.n_bytes for storage in storages.values()) > os.stat(path).st_size:
        raise WeightsError(f"{path}: its members declare more bytes than the file contains")


def _checked(found: object, path: Path) -> tuple[dict[str, Tensor], dict[str, Storage]]:
    """Return the tensors of a state dict by name and their storages by key.

    Raises: WeightsError if it is anything else.
    """
    if not isinstance(found, dict) or not found:
        raise WeightsError(f"{path}: contains no tensors by name; expected a state dict of PyTorch")
    storages: dict[str, Storage] = {}
    for name, value in found.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise WeightsError(f"{path}: {ascii(name)[:60]} is of type {kind}, expected a tensor")
        storage = value.storage
        if storages.setdefault(storage.key, storage) != storage:
            raise WeightsError(f"{path}: two storages have the key {ascii(storage.key)[:60]}")
    if len(found) > MAX_TENSORS:
        raise WeightsError(f"{path}: {len(found):,} tensors, expected at most {MAX_TENSORS:,}")
    return found, storages


# --- pickles ---


def read_pickle(data: bytes, where: Path, types: dict[str, str]) -> tuple[Any, int]:
    """Read the pickle at the start of `data`.

    Args:
        data: at most `MAX_PICKLE_BYTES` of it are read.
        where: the file, for messages.
        types: NumPy dtypes of the storages that are allowed, by the names of their classes.
    Returns: the value, and the size of the pickle in bytes.
    Raises: WeightsError if the pickle is truncated, or contains anything except plain values and
        tensors; the message describes what was found.
    """
    machine = _Machine(where, types)
    try:
        for opcode, argument, place in pickletools.genops(data[:MAX_PICKLE_BYTES]):
            if opcode.name == "STOP":
                return machine.stack.pop(), (place or 0) + 1
            machine.step(opcode.name, argument)
    except WeightsError:
        raise
    except (ValueError, IndexError, KeyError) as error:  # ValueError: no STOP
        raise WeightsError(f"{where}: contains a truncated or damaged pickle") from error
    raise WeightsError(f"{where}: contains a truncated or damaged pickle")


class _Machine:
    """The stack machine: one instruction per `step`."""

    def __init__(self, where: Path, types: dict[str, str]):
        self.where, self.types = where, types
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.below: list[list[Any]] = []  # the stacks below each mark

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "PROTO":
                pass
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(name == "NEWTRUE")
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "BINPUT" | "LONG_BINPUT":
                # Entries are numbered consecutively, and each occupies at least one byte.
                if argument > MAX_PICKLE_BYTES:
                    raise IndexError("a memo index exceeds the size of the pickle")
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "MARK":
                self.below.append(stack)
                self.stack = []
            case "TUPLE":
                items = self._above_mark()
                self.stack.append(tuple(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._popped(int(name[-1]))))
            case "APPEND" | "APPENDS":
                items = self._above_mark() if name == "APPENDS" else self._popped(1)
                self._container(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._above_mark() if name == "SETITEMS" else self._popped(2)
                self._set_items(self._container(dict), items)
            case "BUILD":  # attributes, such as the version of each module
                stack.pop()
                self._container(dict)
            case "GLOBAL":
                stack.append(self._global(argument))
            case "BINPERSID":
                stack.append(self._storage(stack.pop()))
            case "REDUCE":
                stack.append(self._rebuilt(*self._popped(2)))
            case _:
                raise WeightsError(
                    f"{self.where}: its pickle contains the instruction {name}, which state dicts "
                    "do not use"
                )

    def _popped(self, n: int) -> list:
        return [self.stack.pop() for _ in range(n)][::-1]

    def _above_mark(self) -> list:
        items, self.stack = self.stack, self.below.pop()
        return items

    def _container(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise self._unexpected(f"a {kind.__name__}", self.stack[-1])
        return self.stack[-1]

    def _set_items(self, target: dict, items: list) -> None:
        if len(items) % 2:
            raise IndexError("a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise self._unexpected("a string as a key", key)
            target[key] = value

    def _global(self, name: str) -> Global:
        if name != ORDERED_DICT and name not in self.types and name not in REBUILDERS:
            raise WeightsError(
                f"{self.where}: refers to {_shown(name.replace(' ', '.'))}, which state dicts of "
                "float32, float64 or float16 tensors do not use; no code in the file was executed"
            )
        return Global(name)

    def _storage(self, found: Any) -> Storage:
        match found:
            case ("storage", Global(kind), str(key), str(), int(count)) if kind in self.types:
                pass
            case ("storage", Global(kind), str(key), str(), int(count), None) if kind in self.types:
                pass
            case ("storage", _, _, _, _, _):
                raise WeightsError(
                    f"{self.where}: a tensor's storage is a view of another storage; save a copy "
                    f"of the tensor"
                )
            case _:
                raise self._unexpected("a storage of numbers", found)
        if isinstance(count, bool) or count < 0:
            raise self._unexpected("the length of a storage", count)
        return Storage(self.types[kind], key, count)

    def _rebuilt(self, function: Any, arguments: Any) -> dict | Tensor:
        """Return the result of a call: an empty dict, or a tensor whose numbers are all in its
        storage."""
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise self._unexpected("a call that builds a tensor", function)
        if function.name == ORDERED_DICT and not arguments:
            return {}
        fewest, most = REBUILDERS.get(function.name, (1, 0))
        if not fewest <= len(arguments) <= most:
            raise self._unexpected(f"the arguments of {function.name}", len(arguments))
        storage, offset, shape, strides = arguments[:4]
        if not isinstance(storage, Storage):
            raise self._unexpected("a storage", storage)
        if not (_are_counts([offset]) and _are_counts(shape) and _are_counts(strides)):
            raise self._unexpected("offset, shape and strides of a tensor", (offset, shape))
        if len(shape) != len(strides):
            raise self._unexpected(f"{len(shape)} strides", len(strides))
        size = math.prod(shape)
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        # A stride of 0 would make a large tensor from a few numbers.
        if size > storage.size or (size and last >= storage.size):
            raise WeightsError(
                f"{self.where}: a tensor of shape {_shown(shape)} extends beyond its storage of "
                f"{storage.size:,} numbers"
            )
        return Tensor(storage, offset, tuple(shape), tuple(strides))

    def _unexpected(self, expected: str, found: Any) -> WeightsError:
        # Containers may be deeply nested, so the message contains only their type.
        plain = isinstance(found, str | int | Global)
        shown = _shown(found) if plain else type(found).__name__
        return WeightsError(f"{self.where}: found {shown} in its pickle, expected {expected}")


def _are_counts(values: Any) -> bool:
    return (
        isinstance(values, list | tuple)
        and len(values) <= MAX_AXES
        and all(type(value) is int and 0 <= value <= MAX_COUNT for value in values)
    )


def _shown(value: Any) -> str:
    text = ascii(value) if not isinstance(value, str) else ascii(value)[1:-1]
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
