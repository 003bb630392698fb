"""Packages that only some users install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Say which extra of bilm-keras installs the packages that the block imports.

    Args:
        extra: its name in pyproject.toml.
        what: what the user asked for.
    Raises: ImportError if one is missing.
    """
    try:
        yield
    except ImportError as error:
        missing = error.name or str(error)
        raise ImportError(
            f"{what} needs {missing}, which is not installed: pip install 'bilm-keras[{extra}]'",
            name=error.name,
        ) from error
