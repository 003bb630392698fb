"""The values of flags: words of a command line -> names of files, texts, numbers.

Each function raises ValueError, whose message says what is expected.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from bilm.rules import LARGEST


def path(value: str) -> str:
    """Return the name of a file or folder; a leading ~ is the home folder."""
    if not value:
        raise ValueError("found nothing, expected a name")
    if value.startswith("-") and value != "-":
        raise ValueError(f"found a flag, expected a name; ./{value} is a name with a dash")
    found = os.path.expanduser(value)
    if found.startswith("~") and not os.path.lexists(found):
        raise ValueError(f"no home folder is known for {found.partition('/')[0]}")
    return found


def text(value: str) -> str:
    """Return a text, which is UTF-8 whatever the locale says."""
    try:
        return os.fsencode(value).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason})") from None


def names(value: str) -> list[str]:
    """Return the words between commas."""
    return value.split(",")


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Return a function that takes one of a few words."""

    def convert(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return value

    return convert


def number(kind: type, low: float | None = None, high: float | None = None) -> Callable[[str], Any]:
    """Return a function that takes a finite number from `low` to `high`; `kind` is int or float."""
    expected = "expected an integer" if kind is int else "expected a number"
    expected += "" if low is None else f" from {low}"
    expected += "" if high is None else f" up to {high}"

    def convert(value: str) -> Any:
        try:
            found = kind(value)
        except ValueError:
            raise ValueError(expected) from None
        too_low = low is not None and found < low
        too_high = high is not None and found > high
        if too_low or too_high or (kind is float and not math.isfinite(found)):
            raise ValueError(expected)
        if kind is int and abs(found) > LARGEST:
            raise ValueError(f"{expected}, at most {LARGEST}")
        return found

    return convert
