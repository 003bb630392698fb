"""Selects an installed backend when a program imports Keras, and adds bilm's layers to Keras."""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from bilm.support.imports import MissingExtraError
from bilm.support.process import BACKEND, LIBRARIES, backend_of_keras

LAYERS = {"Elmo": "elmo.layer", "WordMask": "elmo.inputs", "ScalarMix": "layers.scalar_mix"}


class KerasFinder(PathFinder):
    """Finds Keras as Python does, and loads it with `_Loader`."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module specification of Keras, None for other modules."""
        found = super().find_spec(fullname, path) if fullname == "keras" else None
        if found is not None and found.origin is not None:
            found.loader = _Loader(fullname, found.origin)
        return found


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        is_chosen = BACKEND in os.environ  # by the user
        backend = backend_of_keras() or LIBRARIES[0]
        if backend != LIBRARIES[0]:
            os.environ[BACKEND] = backend
        try:
            super().exec_module(module)
        except (ImportError, ValueError) as error:
            raise MissingExtraError(
                f"Keras cannot import its backend {backend} ({error}); install it, or set "
                f"{BACKEND} to another one of {', '.join(LIBRARIES)}"
            ) from error
        finally:
            if not is_chosen:
                os.environ.pop(BACKEND, None)
        name_layers(module)


def name_layers(keras: ModuleType) -> None:
    """Add classes to Keras' registry that import a layer when a model contains it."""
    for name, module in LAYERS.items():

        def from_config(config: dict, name: str = name, module: str = f"bilm.{module}") -> object:
            return getattr(import_module(module), name).from_config(config)

        stand_in = type(name, (), {"from_config": staticmethod(from_config)})
        keras.saving.get_custom_objects().setdefault(f"bilm>{name}", stand_in)


def watch() -> None:
    """Select a backend when Keras is imported, and then add the layers to it."""
    if sys.modules.get("keras"):  # None forbids its import
        name_layers(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, KerasFinder)
