"""Reads the pickles inside PyTorch files without PyTorch and without calling the functions that
they refer to.

A pickle is a program for a stack machine and may call any function. This machine implements the
few instructions that state dicts contain. It builds strings, numbers, containers and descriptions
of tensors, and cannot call anything else.
"""

from __future__ import annotations

import pickletools
from typing import Any, NamedTuple

from bilm.errors import WeightsError

MAX_BYTES = 1 << 20  # maximum size of a pickle; a state dict needs about 150 bytes per tensor
MAX_SHOWN = 60  # maximum number of characters of a foreign name in a message
MAX_AXES, MAX_COUNT = 8, 1 << 62  # limits on axes, and on sizes, strides and offset, of a tensor
STORAGES = {
    f"{module} {kind}Storage": dtype
    for module in ("torch", "torch.cuda")
    for kind, dtype in {"Float": "<f4", "Double": "<f8", "Half": "<f2"}.items()
}
ORDERED_DICT = "collections OrderedDict"
REBUILDERS = {"torch._utils _rebuild_tensor": (4, 4), "torch._utils _rebuild_tensor_v2": (6, 7)}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
WITH_VALUE = ("BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1")
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Global(NamedTuple):
    """The name of a function or class that a pickle refers to."""

    name: str


class Storage(NamedTuple):
    """A one-dimensional array that tensors share: NumPy dtype, key in the file, number of
    values."""

    dtype: str
    key: str
    size: int


class Tensor(NamedTuple):
    """The location of a tensor in its storage; `offset` and `strides` count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pickle(data: bytes, where: str) -> tuple[Any, int]:
    """Read the pickle at the start of `data`.

    Args:
        data: at most `MAX_BYTES` of it are read.
        where: name of the source, for messages.
    Returns: the value, and the size of the pickle in bytes.
    Raises: WeightsError if the pickle is truncated, or contains anything except plain values and
        tensors; the message describes what was found.
    """
    machine = _Machine(where)
    try:
        for opcode, argument, place in pickletools.genops(data[:MAX_BYTES]):
            if opcode.name == "STOP":
                return machine.stack.pop(), (place or 0) + 1
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{where}: contains a truncated or damaged pickle") from error
    raise WeightsError(f"{where}: contains a truncated or damaged pickle")


class _Machine:
    """The stack machine: one instruction per `step`."""

    def __init__(self, where: str):
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.below: list[list[Any]] = []  # the stacks below each mark

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in WITH_VALUE:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            # Entries are numbered consecutively, and each occupies at least one byte.
            if argument > MAX_BYTES:
                raise IndexError("a memo index exceeds the size of the pickle")
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "MARK":
            self.below.append(stack)
            self.stack = []
        elif name == "GLOBAL":
            stack.append(self._global(argument))
        elif name != "PROTO":
            self._combine(name)

    def _combine(self, name: str) -> None:
        """Execute an instruction that pops values from the stack."""
        if name == "TUPLE":
            items = self._above_mark()
            self.stack.append(tuple(items))
        elif name in TUPLES:
            items = [self.stack.pop() for _ in range(TUPLES[name])]
            self.stack.append(tuple(items[::-1]))
        elif name in ("APPEND", "APPENDS"):
            items = self._above_mark() if name == "APPENDS" else [self.stack.pop()]
            self._container(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._above_mark() if name == "SETITEMS" else self._two()
            self._set_items(self._container(dict), items)
        elif name == "BUILD":  # attributes, such as the version of each module
            self.stack.pop()
            self._container(dict)
        elif name == "BINPERSID":
            self.stack.append(self._storage(self.stack.pop()))
        elif name == "REDUCE":
            function, arguments = self._two()
            self.stack.append(self._rebuilt(function, arguments))
        else:
            raise WeightsError(
                f"{self.where}: its pickle contains the instruction {name}, which state dicts do "
                f"not use"
            )

    def _above_mark(self) -> list:
        items, self.stack = self.stack, self.below.pop()
        return items

    def _two(self) -> list:
        second = self.stack.pop()
        return [self.stack.pop(), second]

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
        if name != ORDERED_DICT and name not in STORAGES and name not in REBUILDERS:
            raise WeightsError(
                f"{self.where}: refers to {_shown(name.replace(' ', '.'))}, which state dicts of "
                "float32, float64 or float16 tensors do not use; no code in the file was executed"
            )
        return Global(name)

    def _storage(self, found: Any) -> Storage:
        match found:
            case ("storage", Global(kind), str(key), str(), int(count)) if kind in STORAGES:
                pass
            case ("storage", Global(kind), str(key), str(), int(count), None) if kind in STORAGES:
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
        return Storage(STORAGES[kind], key, count)

    def _rebuilt(self, function: Any, arguments: Any) -> dict | Tensor:
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
        return self._tensor(storage, offset, shape, strides)

    def _tensor(self, storage: Storage, offset: Any, shape: Any, strides: Any) -> Tensor:
        """Return the tensor, after checking that all its numbers are in its storage."""
        if not (_are_counts([offset]) and _are_counts(shape) and _are_counts(strides)):
            raise self._unexpected("offset, shape and strides of a tensor", (offset, shape))
        if len(shape) != len(strides):
            raise self._unexpected(f"{len(shape)} strides", len(strides))
        size = 1
        for n in shape:
            size *= n
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
