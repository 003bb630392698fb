"""Writing folders whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import DataError
from bilm.files import beside, expanded, scratch


@contextmanager
def replacing_folder(path: str | os.PathLike, mark: str, others: Collection[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; move it to `path` if the block succeeds.

    A block that fails leaves nothing behind and an earlier folder as it was.

    Args:
        path: the folder. What is there is replaced if it is empty or an earlier output.
        mark: the file by which an earlier output is known.
        others: what else an earlier output may hold.
    Raises: DataError if something else is there, such as an input of this output; OSError if the
        folder cannot be written.
    """
    target = Path(os.path.realpath(expanded(path)))
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: a file is there; expected the name of a folder to write")
    held = sorted(entry.name for entry in target.iterdir()) if target.is_dir() else []
    if held and mark not in held:
        raise DataError(
            f"{path}: holds other files and no {mark}, so it is not replaced; choose another folder"
        )
    if foreign := [name for name in held if name != mark and name not in others]:
        raise DataError(
            f"{path}: holds {foreign[0]} beside its {mark}, so it is not replaced; choose another "
            "folder"
        )
    with scratch(beside(target, ".new")) as folder:
        (folder / "new").mkdir()
        yield folder / "new"
        if target.exists():
            os.rename(target, folder / "old")
        os.rename(folder / "new", target)
