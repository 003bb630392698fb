"""Importing the public names of a package on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Exports = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazily(package: str, homes: Mapping[str, str], optional: Mapping[str, str] = {}) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: its dotted name.
        homes: for each public name the module that defines it, dotted, without `bilm.`.
        optional: the same for names that need an extra. `from package import *` leaves them out.

    Reading a vocabulary then does not wait for TensorFlow, and importing one module of a package
    does not import the others.
    """

    known = {**homes, **optional}

    def get(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"bilm.{known[name]}"), name)

    return get, lambda: sorted(known), sorted(homes)
