"""Importing packages that only some uses need: each is an extra of the distribution."""

from __future__ import annotations

import importlib
from typing import Any

from bilm.errors import BilmError


def optional(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an extra and return it.

    Args:
        module: its dotted name.
        extra: of `pyproject.toml`, which installs it.
        purpose: what needs it, as the error says.
    Raises: BilmError, which says what to install, if it is missing or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        found = "is not installed" if error.name == package else f"cannot be imported ({error})"
        raise BilmError(
            f"{purpose} needs {package}, which {found}; run pip install 'bilm-keras[{extra}]'"
        ) from error
