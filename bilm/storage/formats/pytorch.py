"""PyTorch's state dicts, read without PyTorch: tensors by name, whose values are read when used.

Two formats are supported: that of PyTorch before 1.6, pickles followed by raw numbers, and the ZIP
archive of 1.6 and later, whose members are not compressed.

A pickle is a program for a stack machine and may call any function that `find_class` returns.
`_Unpickler` returns only the stand-ins of this module. The instructions are checked before.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bilm.errors import WeightsError

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
ZIP_MAGIC = b"PK\x03\x04"
ZIP_DAMAGE = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)
MAX_PICKLE_BYTES = 1 << 20  # a state dict needs about 150 bytes per tensor
MAX_AXES, MAX_COUNT = 8, 1 << 62  # limits on axes, and on sizes, strides and offset, of a tensor
MAX_PRINTED = 60  # maximum number of characters of a foreign name in a message
INSTRUCTIONS = re.compile(
    "PROTO|GLOBAL|MARK|EMPTY_(DICT|LIST|TUPLE)|TUPLE[123]?|BINUNICODE|BININT[12]?|LONG1|NONE|"
    "NEWTRUE|NEWFALSE|(LONG_)?BIN(PUT|GET)|BINPERSID|REDUCE|BUILD|SETITEMS?|APPENDS?|STOP"
)
NEW_NAMES = b"ccollections\nOrderedDict\n)R"  # calls the stand-in for OrderedDict
# NumPy has no bfloat16, so these numbers are described as integers of the same size.
STORAGES = {
    f"{module}.{kind}Storage": dtype
    for module in ("torch", "torch.cuda")
    for kind, dtype in {
        "Float": "<f4", "Double": "<f8", "Half": "<f2", "Long": "<i8", "Int": "<i4",
        "Short": "<i2", "Char": "|i1", "Byte": "|u1", "Bool": "|b1", "BFloat16": "<u2",
    }.items()
}  # fmt: skip
REBUILDERS = "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"


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


class StateDict:
    """The tensors of a PyTorch file by name; no value stays in memory.

    Args:
        path: the file, which must not change.
    Attributes:
        shapes, dtypes: shape and dtype of each tensor, by name.
    Raises: WeightsError if it is not a whole state dict in one of the two formats, or contains
        other objects.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()
        self._places: dict[str, int] = {}  # of the storages in a legacy file
        self._root: str | None = None  # folder in a ZIP archive
        try:
            with open(self.path, "rb") as file:
                start = file.read(len(LEGACY_MAGIC))
                if start == LEGACY_MAGIC:
                    self._open_legacy(file)
                elif start.startswith(ZIP_MAGIC):
                    self._open_zip(file)
                else:
                    raise WeightsError(
                        f"{self.path}: not a whole state dict of PyTorch 1.0 or later"
                    )
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ZIP_DAMAGE as error:
            raise WeightsError(f"{path}: truncated or damaged: {error}") from error
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self.dtypes = {
            name: np.dtype(tensor.storage.dtype) for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> np.ndarray:
        """Return the values of a tensor in their stored type. Raises: WeightsError."""
        tensor = self._tensors[name]
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, tensor.storage.dtype)
        try:
            values = self._numbers(tensor.storage)[tensor.offset :]
        except (*ZIP_DAMAGE, OSError, ValueError) as error:
            raise WeightsError(f"{self.path}: {name} cannot be read: {error}") from error
        # `_rebuilt` has checked that the last number lies in the storage.
        strides = [stride * values.itemsize for stride in tensor.strides]
        return np.lib.stride_tricks.as_strided(values, tensor.shape, strides, writeable=False)

    def _open_legacy(self, file: BinaryIO) -> None:
        """Read the four pickles of a file of PyTorch before 1.6, and find the storages after them.

        The pickles contain a version, facts about the machine, the tensors, and the keys of the
        storages in the order of their numbers.
        """
        version = self._next_pickle(file)
        if version != LEGACY_VERSION:
            raise WeightsError(f"{self.path}: an unknown version of PyTorch's format")
        machine = self._next_pickle(file)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise WeightsError(f"{self.path}: not from a little-endian machine")
        self._set_tensors(self._next_pickle(file))
        keys = self._next_pickle(file)
        is_list = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        if not is_list or sorted(keys) != sorted(self._storages):
            raise WeightsError(f"{self.path}: the list of storages does not match the tensors")

        # Each storage is preceded by the number of its values.
        n_bytes = os.fstat(file.fileno()).st_size
        for key in keys:
            storage = self._storages[key]
            n_values = int.from_bytes(file.read(8), "little")
            start = file.tell()
            end = start + storage.n_bytes
            if n_values != storage.size or end > n_bytes:
                raise WeightsError(
                    f"{self.path}: truncated or damaged: {storage.size:,} numbers of a storage are "
                    f"expected at byte {start:,} of {n_bytes:,}, found {n_values:,}"
                )
            self._places[key] = start
            file.seek(end)

    def _next_pickle(self, file: BinaryIO) -> Any:
        start = file.tell()
        value, n_bytes = unpickled(file.read(MAX_PICKLE_BYTES), self.path)
        file.seek(start + n_bytes)
        return value

    def _open_zip(self, file: BinaryIO) -> None:
        """Read the pickle of a file of PyTorch 1.6 or later, and check the members of storages."""
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            pickles = [n for n in members if n.endswith("/data.pkl") and n.count("/") == 1]
            if len(pickles) != 1:
                raise WeightsError(f"{self.path}: a ZIP archive, but not a state dict of PyTorch")
            self._root = root = pickles[0].removesuffix("data.pkl")
            order = members.get(f"{root}byteorder")
            if order is not None and archive.open(order).read(16) != b"little":
                raise WeightsError(f"{self.path}: not from a little-endian machine")
            content = archive.open(pickles[0]).read(MAX_PICKLE_BYTES)
        tensors, _ = unpickled(content, self.path)
        self._set_tensors(tensors)

        # Members are stored as they are, so that their sizes cannot exceed the file's.
        for key, storage in self._storages.items():
            member = members.get(f"{root}data/{key}")
            if member is None or not _is_stored(member, storage.n_bytes):
                raise WeightsError(
                    f"{self.path}: {root}data/{key!a} is missing, compressed or not of "
                    f"{storage.n_bytes:,} bytes"
                )
        if sum(s.n_bytes for s in self._storages.values()) > os.stat(self.path).st_size:
            raise WeightsError(f"{self.path}: its members declare more bytes than the file has")

    def _numbers(self, storage: Storage) -> np.ndarray:
        """Read a storage; the CRC of a member of a ZIP archive is checked."""
        if self._root is None:
            place = self._places[storage.key]
            numbers = np.fromfile(self.path, storage.dtype, storage.size, offset=place)
        else:
            with zipfile.ZipFile(self.path) as archive:
                content = archive.read(f"{self._root}data/{storage.key}")
            numbers = np.frombuffer(content, storage.dtype)
        if len(numbers) != storage.size:
            raise ValueError("truncated")
        return numbers

    def _set_tensors(self, content: Any) -> None:
        """Set the tensors and their storages from the content of a pickle.

        Raises: WeightsError if it is anything except a dict of tensors.
        """
        if not isinstance(content, dict) or not content:
            raise WeightsError(f"{self.path}: contains no tensors by name; expected a state dict")
        self._tensors: dict[str, Tensor] = content
        self._storages: dict[str, Storage] = {}
        for name, value in content.items():
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise WeightsError(
                    f"{self.path}: {ascii(name)[:MAX_PRINTED]} is of type {kind}, expected a tensor"
                )
            storage = value.storage
            if self._storages.setdefault(storage.key, storage) != storage:
                raise WeightsError(f"{self.path}: two storages have the key {storage.key[:60]!a}")


def _is_stored(member: zipfile.ZipInfo, n_bytes: int) -> bool:
    """Return whether a member of a ZIP archive is uncompressed and of a given size."""
    is_plain = member.compress_type == zipfile.ZIP_STORED
    return is_plain and member.file_size == member.compress_size == n_bytes


# --- pickles ---


def unpickled(data: bytes, where: Path) -> tuple[Any, int]:
    """Read the pickle at the start of `data`.

    Args:
        data: at most `MAX_PICKLE_BYTES`.
        where: the file, for messages.
    Returns: the value, and the size of the pickle in bytes.
    Raises: WeightsError if the pickle is truncated, or contains anything except plain values and
        tensors; the message describes what was found.
    """
    try:
        content, n_bytes = _checked_pickle(data)
        return _Unpickler(io.BytesIO(content)).load(), n_bytes
    except WeightsError as error:
        raise WeightsError(f"{where}: {error}; no code in the file was executed") from None
    except Exception as error:  # depends on the damage
        raise WeightsError(f"{where}: contains a truncated or damaged pickle") from error


def _checked_pickle(data: bytes) -> tuple[bytes, int]:
    """Check the instructions of a pickle; return it and its size.

    Each dict is replaced by the stand-in `_Names`: other keys than strings may take any time to
    hash. An index of the memo is smaller than the number of instructions before, so that the memo
    is not larger than the pickle.
    """
    content = bytearray()
    n_copied = n_bytes = 0  # bytes of `data` that were copied to `content`, that were checked
    for n_before, (instruction, argument, place) in enumerate(pickletools.genops(data)):
        name = instruction.name
        if not INSTRUCTIONS.fullmatch(name):
            raise WeightsError(f"contains the instruction {name}, which state dicts do not use")
        if name.endswith("BINPUT") and int(argument or 0) > n_before:
            raise ValueError("memo index")
        n_bytes = (place or 0) + 1  # of the last instruction, which has one byte
        if name == "EMPTY_DICT":
            content += data[n_copied : n_bytes - 1] + NEW_NAMES
            n_copied = n_bytes
    content += data[n_copied:n_bytes]
    return bytes(content), n_bytes


class _Unpickler(pickle.Unpickler):
    """Builds plain values and tensors. Raises: WeightsError for anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a class or function: a `_Call`, or the dtype of a storage."""
        dotted = f"{module}.{name}"
        if dotted == "collections.OrderedDict":
            return _Call(_Names)
        if dotted in REBUILDERS:
            return _Call(_rebuilt)
        if dotted in STORAGES:
            return STORAGES[dotted]
        raise WeightsError(f"refers to {_printable(dotted)}, which state dicts do not use")

    def persistent_load(self, description: Any) -> Storage:
        """Return the storage that a tuple describes: dtype, key, device, number of values, view."""
        match description:
            case ("storage", str(dtype), str(key), str(), int(size), *view):
                is_whole = view in ([], [None])
                if is_whole and dtype in STORAGES.values() and 0 <= size <= MAX_COUNT:
                    return Storage(dtype, key, int(size))
        raise WeightsError("found a storage that is a view, or not one of numbers")


class _Call(NamedTuple):
    """What a pickle may call. Unlike a function or class, it has no attributes to be set."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class _Names(dict):
    """A dict whose keys are strings; attributes, such as versions of modules, are ignored."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise WeightsError(f"found a key of type {type(key).__name__}, expected a string")
        super().__setitem__(key, value)

    def __setstate__(self, state: Any) -> None:
        pass


def _rebuilt(storage: Any, offset: Any, shape: Any, strides: Any, *others: Any) -> Tensor:
    """Return a tensor whose numbers are all in its storage."""
    if not isinstance(storage, Storage):
        raise WeightsError(f"found {type(storage).__name__}, expected a storage")
    if not (_are_counts((offset,)) and _are_counts(shape) and _are_counts(strides)):
        raise WeightsError("found another offset, shape or strides of a tensor than counts")
    size = math.prod(shape)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    # A stride of 0 would make a large tensor from a few numbers.
    if size > storage.size or (size and last >= storage.size):
        raise WeightsError(
            f"a tensor of shape {_printable(str(shape))} extends beyond its storage of "
            f"{storage.size:,} numbers"
        )
    return Tensor(storage, offset, shape, strides)


def _are_counts(values: Any) -> bool:
    return (
        isinstance(values, tuple)
        and len(values) <= MAX_AXES
        and all(type(value) is int and 0 <= value <= MAX_COUNT for value in values)
    )


def _printable(text: str) -> str:
    """Return the start of a foreign name in ASCII."""
    return ascii(text)[1:-1][:MAX_PRINTED]
