"""Entry points: what installed packages, and the studies of this package, add to bilm."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bilm.errors import BilmError
from bilm.support.imports import DISTRIBUTION


class PluginError(BilmError):
    """An installed package adds nothing that can be used."""


def entry_points_of(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, those of this package first. Raises: PluginError if this
    package has none."""
    found = sorted(entry_points(group=group), key=lambda entry: not is_own(entry))
    if not (found and is_own(found[0])):
        raise PluginError(
            f"the installed metadata of {DISTRIBUTION} lack the entry points {group}, so commands "
            "or options are missing; in a checkout, install it again with pip install --editable ."
        )
    return found


def is_own(entry: EntryPoint) -> bool:
    """Return whether an entry point belongs to this package."""
    return entry.dist is not None and entry.dist.name == DISTRIBUTION


def described(entry: EntryPoint, problem: str) -> str:
    """Return a line about an entry point that cannot be used."""
    package = entry.dist.name if entry.dist else "an unknown package"
    return f"{entry.group}: cannot load {entry.name} of {package} from {entry.value}: {problem}"


def loaded(entry: EntryPoint) -> Any:
    """Import the object of an entry point. Raises: PluginError, which names package and module."""
    try:
        return entry.load()
    except Exception as error:  # of code of another package
        problem = f"{type(error).__name__}: {error}"
        raise PluginError(described(entry, problem)) from error
