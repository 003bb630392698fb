"""Frozen dataclasses that check their values and convert to and from JSON objects."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from bilm.errors import OptionsError
from bilm.files import SWAPPED, is_hdf5, replacing

T = TypeVar("T", bound="Checked")
MAX_BYTES = 1 << 20  # of a JSON file; options have a few thousand


class Rule(NamedTuple):
    """What a value must be: a test, and its description in error messages."""

    holds: Callable[[Any], bool]
    expected: str


def key(rule: Rule | type[Checked], default: Any = MISSING, null: bool | None = None) -> Any:
    """Declare a key: its rule, or the class of a nested object.

    Args:
        default: the value if the key is absent; without a default the key is required.
        null: whether null stands for the default; by default only if the default is None.
    """
    null = default is None if null is None else null
    return dataclasses.field(default=default, metadata={"rule": rule, "null": null})


def keys(options: Checked | type[Checked]) -> list[dataclasses.Field]:
    """Return the fields that are keys, in order."""
    return [field for field in dataclasses.fields(options) if "rule" in field.metadata]


def unexpected(name: str, found: Any, expected: str) -> OptionsError:
    """Return an error that says what was found at a key and what was expected."""
    shown = json.dumps(found, default=repr)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return OptionsError(f"{name}: found {shown}, expected {expected}")


@dataclass(frozen=True)
class Checked:
    """Values that are checked when an object is created; `other` holds the unknown keys."""

    ALLOWED: ClassVar[tuple[str, ...]] = ()  # unknown keys that strict reading accepts

    other: Mapping[str, Any] = dataclasses.field(default_factory=dict, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        for field in keys(self):
            value, rule = getattr(self, field.name), _rule(field)
            if value is None and field.metadata["null"]:
                object.__setattr__(self, field.name, field.default)
            elif not rule.holds(value):
                raise unexpected(field.name, value, rule.expected)

    def replace(self: T, **changes: Any) -> T:
        """Return a copy with some values changed and all checked."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, with unknown keys and without values that are None.

        An absent key reads the same as null, and older readers fail on null.
        """
        values = {field.name: _plain(getattr(self, field.name)) for field in keys(self)}
        return {name: value for name, value in values.items() if value is not None} | {**self.other}

    def other_names(self) -> Iterator[str]:
        """Yield the dotted names of the unknown keys."""
        for field in keys(self):
            value = getattr(self, field.name)
            if isinstance(value, Checked):
                yield from (f"{field.name}.{name}" for name in value.other_names())
        yield from self.other


def difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Return the dotted name and the values of the first key in which two objects differ."""
    if not (isinstance(old, Checked) and isinstance(new, Checked)):
        return None if old == new else (name, old, new)
    names = (field.name for field in keys(old))
    pairs = ((getattr(old, k), getattr(new, k), f"{name}.{k}".lstrip(".")) for k in names)
    return next(filter(None, (difference(*pair) for pair in pairs)), None)


def read(cls: type[T], values: Any, *, strict: bool) -> T:
    """Build `cls` from a JSON object.

    Args:
        strict: raise an error for an unknown key instead of keeping it in `other`.

    Raises: OptionsError that starts with the dotted name of the key.
    """
    known = {field.name: field for field in keys(cls)}
    other = {name: value for name, value in values.items() if name not in known}
    unknown = [name for name in other if name not in cls.ALLOWED]
    if strict and unknown:
        expected = ", ".join(known)
        raise OptionsError(f"{unknown[0]}: unknown key, expected one of {expected}")
    arguments = {}
    for name, field in known.items():
        if name in values:
            arguments[name] = _read_value(field, values[name], strict)
        elif field.default is MISSING:
            raise OptionsError(f"{name}: missing, expected {_rule(field).expected}")
    return cls(**arguments, other=other)


def load(cls: type[T], path: str | Path, *, strict: bool) -> T:
    """Build `cls` from a JSON file. Raises: OptionsError that starts with the path."""
    values = read_object(path)
    try:
        return read(cls, values, strict=strict)
    except OptionsError as error:
        raise OptionsError(f"{path}: {error}") from None


def read_object(path: str | Path) -> dict[str, Any]:
    """Read the JSON object of a file. Raises: OptionsError that starts with the path."""
    try:
        if is_hdf5(path):
            raise OptionsError(f"found an HDF5 file, expected options.json; {SWAPPED}")
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise OptionsError(f"found more than {MAX_BYTES:,} bytes, expected a small JSON object")
        values = json.loads(text, object_pairs_hook=_without_duplicates)
        if not isinstance(values, dict):
            raise unexpected("top level", values, "an object")
        return values
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except OptionsError as error:
        problem = str(error)
    except json.JSONDecodeError as error:
        problem = f"invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:  # not UTF-8, endless digits or nesting
        problem = f"invalid JSON: {error}"
    raise OptionsError(f"{path}: {problem}")


def write(path: str | Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all. Raises: OptionsError that starts with the path."""
    text = json.dumps(values, indent=2) + "\n"
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionsError(f"{path}: cannot be written: {error.strerror or error}") from None


def _rule(field: dataclasses.Field) -> Rule:
    rule = field.metadata["rule"]
    if isinstance(rule, type):
        rule = Rule(lambda value, cls=rule: isinstance(value, cls), "an object")
    return Rule(rule.holds, f"{rule.expected} or null") if field.metadata["null"] else rule


def _read_value(field: dataclasses.Field, value: Any, strict: bool) -> Any:
    nested = field.metadata["rule"]
    if not isinstance(nested, type) or not isinstance(value, dict):
        return value
    try:
        return read(nested, value, strict=strict)
    except OptionsError as error:
        raise OptionsError(f"{field.name}.{error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Checked):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = set()
    for name, _ in pairs:
        if name in names:
            raise OptionsError(f"{name}: found twice, expected once")
        names.add(name)
    return dict(pairs)
