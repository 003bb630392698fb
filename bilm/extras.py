"""Packages that only some users install: each belongs to an extra of the distribution."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bilm.errors import BilmError


class MissingExtraError(ImportError, BilmError):
    """A package of an extra is not installed."""


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Say which extra of bilm-keras installs the packages that the block imports.

    Args:
        extra: its name in pyproject.toml.
        what: what the user asked for.
    Raises: MissingExtraError if one is missing.
    """
    try:
        yield
    except ImportError as error:
        missing = error.name or str(error)
        raise MissingExtraError(
            f"{what} needs {missing}, which is not installed: pip install 'bilm-keras[{extra}]'",
            name=error.name,
        ) from error


def optional(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra, by its dotted name, and return it: see `needed`."""
    with needed(extra, what):
        return importlib.import_module(module)
