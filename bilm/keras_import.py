"""What bilm adds to the import of Keras, whoever imports it: bilm itself does not, as that is slow.

A backend that cannot be used is an error that names KERAS_BACKEND. Afterwards Keras knows the names
of bilm's layers, so that it loads models that contain them before the layers are imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

from bilm.support.imports import MissingExtraError
from bilm.support.process import BACKEND

LAYERS = {"Elmo": "elmo.layer", "WordMask": "elmo.layer", "ScalarMix": "layers.scalar_mix"}


def watch() -> None:
    """Name bilm's layers to Keras when it is imported, or now if it was."""
    if "keras" in sys.modules:
        _name_layers(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds Keras as Python does, and loads it with `_Loader`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path) if fullname == "keras" else None
        if found is None or not isinstance(found.loader, SourceFileLoader):
            return None
        place = found.loader.path
        return spec_from_file_location(fullname, place, loader=_Loader(fullname, place))


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except (ImportError, ValueError) as error:
            if BACKEND not in os.environ:
                raise
            raise MissingExtraError(
                f"{BACKEND} is {os.environ[BACKEND]!r}, a backend that Keras cannot import "
                f"({error}); install it, or set the variable to tensorflow, torch or jax"
            ) from error
        _name_layers(module)


def _name_layers(keras: Any) -> None:
    known = keras.saving.get_custom_objects()
    for name, module in LAYERS.items():
        known.setdefault(f"bilm>{name}", _deferred(name, f"bilm.{module}"))


def _deferred(name: str, module: str) -> type:
    """Return a class for Keras' registry that imports the layer when a model contains it. The
    module's own registration replaces it."""

    def from_config(config: dict[str, Any]) -> Any:
        return getattr(import_module(module), name).from_config(config)

    return type(name, (), {"from_config": staticmethod(from_config)})
