"""Importing public names on first use, and optional packages."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from bilm.errors import BilmError

DISTRIBUTION = "bilm-keras"  # this project's name for pip; `bilm` is another project
WITHOUT_TENSORFLOW = (
    "embeds and scores with exported models in NumPy, or in Keras on PyTorch or JAX; it does not "
    "train, and does not read checkpoints"
)


def lazily(
    package: str, modules: Mapping[str, str], optional: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that imports modules on first use.
    `modules`: public names, separated by blanks, by the names of their modules below `bilm`;
    `optional`: names that require an extra, which `import *` skips."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"bilm.{homes[name]}"), name)

    always = sorted(homes.keys() - set(optional))
    return get, lambda: sorted(homes), always


class MissingExtraError(ImportError, BilmError):
    """An optional package is not installed."""


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import in the block into an error that names the extra which `what` needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{what} requires {error.name or error}, which is not installed: in a checkout of "
            f"bilm, run pip install '.[{extra}]'",
            name=error.name,
        ) from error


def optional(module: str, extra: str, what: str) -> ModuleType:
    """Import a module of an extra by its dotted name and return it; see `needed`."""
    with needed(extra, what):
        return importlib.import_module(module)
