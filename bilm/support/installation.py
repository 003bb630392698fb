"""Detects the TensorFlow 1 package `bilm` in the folder where this package is installed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DISTRIBUTION = "bilm-keras"  # this project's name for pip; `bilm` is another project
THEIRS = "bilm/data.py"  # a file of the other package; here `bilm.data` is a folder


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
