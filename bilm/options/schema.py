"""Frozen dataclasses that check their values and convert to and from JSON objects. Each class
declares its keys with `key`; reading, checking and writing follow from the `Rule` of each."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from bilm.activations import ACTIVATIONS
from bilm.errors import OptionsError
from bilm.support.files import replacing, unusable

T = TypeVar("T", bound="Checked")
MAX_SHOWN = 60  # characters of a value in a message
MAX_BYTES = 1 << 24  # of a JSON file; the record of a run lists the files of its text

MAX_INT32 = 2**31 - 1  # limit on the length of an axis: ids and row numbers are int32
LARGEST = 2**63 - 1  # limit on counts, which are int64
MAX_LAYERS = 128  # limit on LSTM layers, highway layers and filters
MIN_WORD_LENGTH = 3  # characters of a word: the begin mark, one character and the end mark
MAX_WORD_LENGTH = 10_000  # each token of a batch has this width


class Rule(NamedTuple):
    """A test of a value, and the description of valid values for error messages."""

    holds: Callable[[Any], bool]
    expected: str


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def integer(low: int, high: int) -> Rule:
    """Return the rule for integers from `low` to `high`."""
    expected = f"an integer from {low} to {high}"
    return Rule(lambda value: _is_integer(value) and low <= value <= high, expected)


def number(low: float, high: float, expected: str) -> Rule:
    """Return the rule for numbers from `low` to `high`, which are neither NaN nor infinite."""

    def holds(value: Any) -> bool:
        is_number = _is_integer(value) or isinstance(value, float)
        return is_number and low <= value <= high

    return Rule(holds, expected)


def choice(*values: str) -> Rule:
    """Return the rule for one of several strings."""
    return Rule(lambda value: value in values, " or ".join(values))


def list_of(item: Rule, least: int, most: int, expected: str) -> Rule:
    """Return the rule for lists of `least` to `most` items."""

    def holds(value: Any) -> bool:
        is_list = isinstance(value, list | tuple) and least <= len(value) <= most
        return is_list and all(map(item.holds, value))

    return Rule(holds, expected)


def instance(kind: type, expected: str) -> Rule:
    """Return the rule for instances of a class."""
    return Rule(lambda value: isinstance(value, kind), expected)


BOOLEAN = instance(bool, "true or false")
NUMBER = integer(1, LARGEST)
COUNT = integer(0, LARGEST)
SIZE = integer(1, MAX_INT32)
LAYERS = integer(1, MAX_LAYERS)
LAYERS_OR_NONE = integer(0, MAX_LAYERS)
WORD_LENGTH = integer(MIN_WORD_LENGTH, MAX_WORD_LENGTH)
LOW, HIGH = 1e-37, 3e38  # of positive numbers that float32 represents
POSITIVE = number(LOW, HIGH, f"a positive number from {LOW:g} to {HIGH:g}, the range of float32")
PROBABILITY = number(0, math.nextafter(1, 0), "a number in [0, 1)")
SHARE = number(0, 1, "a number in [0, 1]")
ACTIVATION = Rule(  # looks activations up when it is used, so that programs can add their own
    lambda value: isinstance(value, str) and value in ACTIVATIONS, " or ".join(ACTIVATIONS)
)
PAIR = list_of(SIZE, 2, 2, "a pair")
PAIRS = f"a list of 1 to {MAX_LAYERS} pairs [width, number] of positive integers"
FILTERS = list_of(PAIR, 1, MAX_LAYERS, PAIRS)
LEXICON = instance(Mapping, "an object that maps strings to integer ids")


def key(rule: Rule | type[Checked], default: Any = MISSING, null: bool = False) -> Any:
    """Declare a key: its rule, or the class of a nested object. `default`: the value if the key is
    absent; MISSING if it is required. `null`: whether null is read as the default."""
    nested = rule if isinstance(rule, type) else None
    checked = instance(rule, "an object") if isinstance(rule, type) else rule
    null = null or default is None
    if null:
        checked = Rule(checked.holds, f"{checked.expected} or null")
    metadata = {"rule": checked, "nested": nested, "null": null}
    return dataclasses.field(default=default, metadata=metadata)


def keys(options: Checked | type[Checked]) -> list[dataclasses.Field]:
    """Return the fields that are keys, in order."""
    return [field for field in dataclasses.fields(options) if "rule" in field.metadata]


def unexpected(name: str, found: object, expected: str) -> OptionsError:
    """Return an error that names the key, the value found and the values expected."""
    text = json.dumps(found, default=repr)
    if len(text) > MAX_SHOWN:
        text = f"{text[: MAX_SHOWN - 3]}..."
    return OptionsError(f"{name}: found {text}, expected {expected}")


@dataclass(frozen=True)
class Checked:
    """Base class: checks values; `other` contains unknown keys, `file` the name of the file."""

    STRICT: ClassVar[bool] = False  # whether unknown keys are an error
    ALLOWED: ClassVar[tuple[str, ...]] = ()  # unknown keys that are not

    other: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True, hash=False)
    file: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        for field in keys(self):
            value, rule = getattr(self, field.name), field.metadata["rule"]
            if value is None and field.metadata["null"]:
                object.__setattr__(self, field.name, field.default)
            elif not rule.holds(value):
                raise unexpected(field.name, value, rule.expected)
        self._check()

    def _check(self) -> None:
        """Check values that depend on each other, or complete them. Raises: OptionsError."""

    @classmethod
    def from_dict(cls: type[T], values: Mapping[str, Any], strict: bool | None = None) -> T:
        """Build from a JSON object; unknown keys are kept, or an error if `strict`, by default
        `STRICT`. Raises: OptionsError that starts with the dotted name of the key."""
        strict = cls.STRICT if strict is None else strict
        known = {field.name: field for field in keys(cls)}
        other = {name: value for name, value in values.items() if name not in known}
        unknown = [name for name in other if name not in cls.ALLOWED]
        if strict and unknown:
            expected = ", ".join(known)
            raise OptionsError(f"{unknown[0]}: unknown key, expected one of {expected}")

        arguments: dict[str, Any] = {}
        for name, field in known.items():
            nested = field.metadata["nested"]
            value = values.get(name)
            if nested is not None and isinstance(value, dict):
                try:
                    arguments[name] = nested.from_dict(value, strict)
                except OptionsError as error:
                    raise OptionsError(f"{name}.{error}") from None
            elif name in values:
                arguments[name] = value
            elif field.default is MISSING:
                raise OptionsError(f"{name}: missing, expected {field.metadata['rule'].expected}")
        return cls(**arguments, other=other)

    def replace(self: T, **changes: Any) -> T:
        """Return a copy with some values changed and all checked."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object with unknown keys, without None, on which older readers fail."""
        values = {field.name: _plain(getattr(self, field.name)) for field in keys(self)}
        return {name: value for name, value in values.items() if value is not None} | {**self.other}

    def other_names(self) -> Iterator[str]:
        """Yield the dotted names of the unknown keys."""
        for field in keys(self):
            value = getattr(self, field.name)
            if isinstance(value, Checked):
                for name in value.other_names():
                    yield f"{field.name}.{name}"
        yield from self.other


def load(cls: type[T], path: str | Path) -> T:
    """Build `cls` from a JSON file. Raises: OptionsError that starts with the path."""
    values = read_object(path)
    try:
        return cls.from_dict(values).replace(file=f"{path}: ")
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from None


def read_object(path: str | Path) -> dict[str, Any]:
    """Read the JSON object of a file. Raises: OptionsError that starts with the path."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OptionsError(f"{path}: cannot be read: {error.strerror or error}") from None
    if content.startswith(b"\x89HDF"):
        raise OptionsError(f"{path}: found an HDF5 file, expected options.json, before the weights")
    if len(content) > MAX_BYTES:
        raise OptionsError(f"{path}: more than {MAX_BYTES:,} bytes, expected a small JSON object")
    try:
        values = json.loads(content, object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:  # not Unicode, endless digits or nesting
        raise OptionsError(unusable(path, f"invalid JSON: {error}")) from None
    if not isinstance(values, dict):
        raise OptionsError(f"{path}: {unexpected('top level', values, 'an object')}")
    return values


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for `json.loads`. Raises: ValueError for a key that occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        [(name, n)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"found the key {ascii(name)[:MAX_SHOWN]} {n} times, expected it once")
    return values


def write(path: str | Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file atomically. Raises: OSError."""
    text = json.dumps(values, indent=2) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _plain(value: object) -> object:
    if isinstance(value, Checked):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
