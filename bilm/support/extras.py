"""Imports of optional packages, each of which belongs to an extra in pyproject.toml."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bilm.errors import BilmError


class MissingExtraError(ImportError, BilmError):
    """An optional package is not installed."""


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import in the block into an error that names the extra to install.

    Args:
        extra: the extra's name in pyproject.toml.
        what: the feature that the user requested.
    Raises: MissingExtraError if a package is missing.
    """
    try:
        yield
    except ImportError as error:
        missing = error.name or str(error)
        raise MissingExtraError(
            f"{what} requires {missing}, which is not installed: in a checkout of bilm, run "
            f"pip install '.[{extra}]'",
            name=error.name,
        ) from error


def optional(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra by its dotted name and return it; see `needed`."""
    with needed(extra, what):
        return importlib.import_module(module)
