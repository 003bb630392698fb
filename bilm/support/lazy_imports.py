"""Importing the public names of a package on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

Exports = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazily(package: str, homes: Mapping[str, str], optional: Mapping[str, str] = {}) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: dotted name of the package.
        homes: maps each public name to the dotted name of its module, relative to `bilm`.
        optional: the same for names that require an extra; `from package import *` skips them.

    Importing one module of a package then does not import the others, so that reading a vocabulary
    does not import TensorFlow.
    """
    known = {**homes, **optional}

    def get(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"bilm.{known[name]}"), name)

    return get, lambda: sorted(known), sorted(homes)
