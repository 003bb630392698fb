"""Importing public names on first use, and optional packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from bilm.errors import BilmError

DISTRIBUTION = "bilm-keras"  # this project's name for pip; `bilm` is another project

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


def register_with_keras(homes: Mapping[str, str]) -> None:
    """Let Keras load models that contain classes of this package, without importing them before.

    Args:
        homes: maps the name of each class to its module. The module registers the class itself
            when it is imported.
    """
    stubs = {f"bilm>{name}": _stub(name, module) for name, module in homes.items()}

    def register() -> None:
        known = sys.modules["keras"].saving.get_custom_objects()
        known.update({name: stub for name, stub in stubs.items() if name not in known})

    if sys.modules.get("keras") is not None:
        register()
    else:
        sys.meta_path.insert(0, _AfterImport("keras", register))


def _stub(name: str, module: str) -> type:
    """Return a class whose `from_config` is that of a class that it imports."""

    def from_config(cls: type, config: Any) -> Any:
        return getattr(importlib.import_module(module), name).from_config(config)

    return type(name, (), {"from_config": classmethod(from_config)})


class _AfterImport(MetaPathFinder):
    """Calls a function once, as soon as a module has been imported."""

    def __init__(self, name: str, function: Callable[[], None]):
        self._name, self._function = name, function

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that calls the function at the end."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute, function = spec.loader.exec_module, self._function

            def exec_module(module: ModuleType) -> None:
                execute(module)
                function()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 (mypy: a method)
        return spec


class MissingExtraError(ImportError, BilmError):
    """An optional package is not installed."""


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import in the block into an error that names the extra to install.

    Args:
        extra: the extra's name in pyproject.toml.
        what: the feature that the user requested.
    Raises: MissingExtraError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{what} requires {error.name or error}, which is not installed: in a checkout of "
            f"bilm, run pip install '.[{extra}]'",
            name=error.name,
        ) from error


def optional(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra by its dotted name and return it; see `needed`."""
    with needed(extra, what):
        return importlib.import_module(module)
