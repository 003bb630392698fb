"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SWAPPED = "options come first, weights second"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: str | Path) -> bool:
    """Tell whether a file starts as HDF5 does."""
    with open(path, "rb") as file:
        return file.read(len(HDF5_MAGIC)) == HDF5_MAGIC


def is_json_object(path: str | Path) -> bool:
    """Tell whether a file starts as a JSON object does."""
    with open(path, "rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it into place if the block succeeds.

    Raises: OSError if the folder cannot be written; a failed block leaves nothing behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
