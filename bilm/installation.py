"""What else is installed in the folder of this package: the TensorFlow 1 package named `bilm`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DISTRIBUTION = "bilm-keras"  # what pip calls this project; `bilm` is the name of another one there
THEIRS = "bilm/data.py"  # a file of theirs; here `bilm.data` is a folder


def conflict() -> str | None:
    """Return what is wrong where the TensorFlow 1 package `bilm` is installed in the same folder.

    Its files and ours overwrite each other, and to uninstall it removes some of ours.
    """
    from importlib.metadata import distributions  # takes longer than `import bilm` may

    folder = Path(__file__).resolve().parent
    for other in distributions(name="bilm", path=[str(folder.parent)]):
        if any(file.as_posix() == THEIRS for file in other.files or ()):
            return (
                f"{folder}: bilm {other.version}, for TensorFlow 1, and {DISTRIBUTION} are both "
                "installed here and overwrite each other's files; repair: pip uninstall bilm "
                f"{DISTRIBUTION}, then pip install {DISTRIBUTION}"
            )
    return None


@cache
def warn_of_conflict() -> None:
    """Warn on the log, once, if there is a conflict."""
    from absl import logging

    if message := conflict():
        logging.warning("%s", message)
