"""Importing public names on first use, optional packages, and a conflicting package `bilm`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bilm.errors import BilmError

DISTRIBUTION = "bilm-keras"  # this project's name for pip; `bilm` is another project
THEIRS = "bilm/data.py"  # a file of the other package; here `bilm.data` is a folder

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


# --- optional packages; each one belongs to an extra in pyproject.toml ---


class MissingExtraError(ImportError, BilmError):
    """An optional package is not installed or cannot be imported."""


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import in the block into an error that names the extra to install, or the
    reason why an installed package cannot be imported.

    Args:
        extra: the extra's name in pyproject.toml.
        what: the feature that the user requested.
    Raises: MissingExtraError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        raise MissingExtraError(
            f"{what} requires {missing}, which is not installed: in a checkout of bilm, run "
            f"pip install '.[{extra}]'",
            name=error.name,
        ) from error
    except ImportError as error:
        raise MissingExtraError(
            f"{what}: a package of the extra {extra} cannot be imported: {error}; install it again",
            name=error.name,
        ) from error


def optional(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra by its dotted name and return it; see `needed`."""
    with needed(extra, what):
        return importlib.import_module(module)


# --- the TensorFlow 1 package `bilm` ---


def conflict() -> str | None:
    """Return an error message if the TensorFlow 1 package `bilm` shares this package's folder.

    The files of the two packages overwrite each other, and uninstalling one removes files of both.
    """
    from importlib.metadata import distributions  # slow, so not imported with bilm

    folder = Path(__file__).resolve().parents[1]
    for other in distributions(name="bilm", path=[str(folder.parent)]):
        if any(file.as_posix() == THEIRS for file in other.files or ()):
            return (
                f"{folder}: bilm {other.version}, for TensorFlow 1, and {DISTRIBUTION} are both "
                "installed here and overwrite each other's files; uninstall both (pip uninstall "
                f"bilm {DISTRIBUTION}), then reinstall {DISTRIBUTION}"
            )
    return None


@cache
def warn_of_conflict() -> None:
    """Log a warning once if there is a conflict."""
    from absl import logging

    if message := conflict():
        logging.warning("%s", message)
