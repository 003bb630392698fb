"""PyTorch's state dicts, read without PyTorch, in two formats: that before 1.6, pickles followed by
raw numbers, and the ZIP archive of 1.6 and later, whose members are not compressed.

A pickle is a program for a stack machine and may call any function that `find_class` returns.
`_Unpickler` returns only the stand-ins of this module, and executes only instructions that state
dicts need.
"""

import io
import math
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.errors import WeightsError
from bilm.storage.stored_tensors import LazyTensor
from bilm.support.files import unusable

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
ZIP_MAGIC = b"PK\x03\x04"
ZIP_DAMAGE = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError)
MAX_PICKLE_BYTES = 1 << 20  # a state dict needs about 150 bytes per tensor
MAX_AXES, MAX_COUNT = 8, 1 << 62  # limits on axes, and on sizes, strides and offset, of a tensor
MAX_PRINTED = 60  # maximum number of characters of a foreign name in a message
OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
INSTRUCTIONS = re.compile(
    "PROTO|GLOBAL|MARK|EMPTY_(DICT|LIST|TUPLE)|TUPLE[123]?|BINUNICODE|BININT[12]?|LONG1|NONE|"
    "NEWTRUE|NEWFALSE|(LONG_)?BIN(PUT|GET)|BINPERSID|REDUCE|BUILD|SETITEMS?|APPENDS?|STOP"
)
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
    """A one-dimensional array that tensors share."""

    dtype: str  # of NumPy
    key: str  # its name in the file
    size: int  # number of values

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


class StateDict(dict[str, LazyTensor]):
    """The tensors of a PyTorch file, which must not change, by name; no value stays in memory.
    Raises: WeightsError, also when a value is read, if it is damaged or contains other objects."""

    def __init__(self, path: str | Path):
        super().__init__()
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
                    raise WeightsError("not a whole state dict of PyTorch 1.0 or later")
        except WeightsError as error:
            raise WeightsError(unusable(self.path, str(error))) from error
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ZIP_DAMAGE as error:
            raise WeightsError(f"{path}: truncated or damaged: {error}") from error

    def _open_legacy(self, file: IO[bytes]) -> None:
        """Read the pickles of a file of PyTorch before 1.6: a version, facts about the machine, the
        tensors and the keys of the storages; find the storages after them."""
        if unpickled(file) != LEGACY_VERSION:
            raise WeightsError("an unknown version of PyTorch's format")
        machine = unpickled(file)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise WeightsError("not from a little-endian machine")
        storages = self._add_tensors(unpickled(file))
        keys = unpickled(file)
        is_list = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        if not is_list or sorted(keys) != sorted(storages):
            raise WeightsError("the list of storages does not match the tensors")

        # Each storage is preceded by the number of its values.
        n_bytes = os.fstat(file.fileno()).st_size
        for key in keys:
            storage = storages[key]
            n_values = int.from_bytes(file.read(8), "little")
            start = file.tell()
            end = start + storage.n_bytes
            if n_values != storage.size or end > n_bytes:
                raise WeightsError(
                    f"truncated or damaged: {storage.size:,} numbers of a storage are expected at "
                    f"byte {start:,} of {n_bytes:,}, found {n_values:,}"
                )
            self._places[key] = start
            file.seek(end)

    def _open_zip(self, file: IO[bytes]) -> None:
        """Read the pickle of a file of PyTorch 1.6 or later, and check the members of storages."""
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            pickles = [n for n in members if n.endswith("/data.pkl") and n.count("/") == 1]
            if len(pickles) != 1:
                raise WeightsError("a ZIP archive, but not a state dict of PyTorch")
            self._root = root = pickles[0].removesuffix("data.pkl")
            order = members.get(f"{root}byteorder")
            if order is not None and archive.open(order).read(16) != b"little":
                raise WeightsError("not from a little-endian machine")
            with archive.open(pickles[0]) as content:
                storages = self._add_tensors(unpickled(content))

        # Members are stored as they are, so that their sizes cannot exceed the file's.
        for key, storage in storages.items():
            member = members.get(f"{root}data/{key}")
            stored = zipfile.ZIP_STORED, storage.n_bytes
            if member is None or (member.compress_type, member.file_size) != stored:
                raise WeightsError(
                    f"{root}data/{key!a} is missing, compressed or not of {storage.n_bytes:,} bytes"
                )
        if sum(s.n_bytes for s in storages.values()) > os.fstat(file.fileno()).st_size:
            raise WeightsError("its members declare more bytes than the file has")

    def _add_tensors(self, content: Any) -> dict[str, Storage]:
        """Add the tensors of a pickle, a dict of tensors; return their storages by key."""
        if not isinstance(content, dict) or not content:
            raise WeightsError("contains no tensors by name; expected a state dict")
        storages: dict[str, Storage] = {}
        for name, value in content.items():
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise WeightsError(
                    f"{ascii(name)[:MAX_PRINTED]} is of type {kind}, expected a tensor"
                )
            storage = value.storage
            if storages.setdefault(storage.key, storage) != storage:
                raise WeightsError(f"two storages have the key {storage.key[:60]!a}")
            read = partial(self._read, name, value)
            self[name] = LazyTensor(value.shape, np.dtype(storage.dtype), read)
        return storages

    def _read(self, name: str, tensor: Tensor) -> np.ndarray:
        storage = tensor.storage
        size = np.dtype(storage.dtype).itemsize
        strides = [stride * size for stride in tensor.strides]
        try:
            if self._root is None:
                with open(self.path, "rb") as file:
                    file.seek(self._places[storage.key])
                    content = file.read(storage.n_bytes)
            else:
                with zipfile.ZipFile(self.path) as archive:  # checks the CRC of the member
                    content = archive.read(f"{self._root}data/{storage.key}")
            return np.ndarray(tensor.shape, storage.dtype, content, tensor.offset * size, strides)
        except (*ZIP_DAMAGE, OSError, ValueError, TypeError) as error:
            raise WeightsError(f"{self.path}: {name} cannot be read: {error}") from error


# --- pickles ---


def unpickled(file: IO[bytes]) -> Any:
    """Read the next pickle of a file. Raises: WeightsError if it is truncated, or contains anything
    except plain values and tensors."""
    start = file.tell()
    content = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    try:
        value = _Unpickler(content).load()
    except WeightsError as error:
        raise WeightsError(f"{error}; no code in the file was executed") from None
    except Exception as error:  # depends on the damage
        raise WeightsError("contains a truncated or damaged pickle") from error
    file.seek(start + content.tell())
    return value


class _Instructions(dict[int, Callable[..., None]]):
    """The functions that execute the instructions of state dicts, by code."""

    def __missing__(self, code: int) -> Callable[..., None]:
        name = OPCODES[code]
        raise WeightsError(f"contains the instruction {name}, which state dicts do not use")


class _Unpickler(pickle._Unpickler):
    """Builds plain values and tensors. Raises: WeightsError for anything else. The class in Python,
    unlike that in C, has a table of instructions, and a memo whose size the file cannot choose."""

    dispatch = _Instructions(
        (code, execute)
        for code, execute in pickle._Unpickler.dispatch.items()
        if INSTRUCTIONS.fullmatch(OPCODES[code])
    )

    def load_empty_dict(self) -> None:
        """Use the stand-in: other keys than strings may take any time to hash."""
        self.append(_Names())  # type: ignore[attr-defined]

    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dict

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
