"""One HDF5 file, written as closed parts that survive an interruption."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py

from bilm.errors import DataError
from bilm.files import LOCK, PREFIX, beside, hold, output_path, remove_leftovers, replacing, scratch
from bilm.storage.hdf5 import NewHDF5

RUN = "run.json"


class Parts:
    """The folder `<outfile>.parts`: part files 0, 1, 2, ..., each there whole or not at all.

    A context manager: inside the block no other process or thread can write the same output.

    Args:
        outfile: what the parts will be merged into.
        run: what shapes the result, by name, as JSON has it. A folder that is there is continued
            only by the run that it was made for.
    Raises: when entered, DataError if another process writes the folder, or if it belongs to
        another run; OSError if it cannot be written.
    """

    def __init__(self, outfile: str | os.PathLike, run: dict[str, object]):
        self.outfile, self._run = output_path(outfile), run
        self.folder = beside(self.outfile, ".parts")

    def __enter__(self) -> Parts:
        remove_leftovers(self.outfile)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / RUN).exists() and self._strangers():
            raise DataError(f"{self.folder} is no folder of parts; remove it or change outfile")
        self._lock = hold(self.folder / LOCK, os.O_CREAT)
        if self._lock is None:
            raise DataError(
                f"{self.folder}: another process is writing {self.outfile}; wait until it ends, "
                "or change outfile"
            )
        try:
            self._begin()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        os.close(self._lock)

    def path(self, part: int) -> Path:
        """Return the path of a part."""
        return self.folder / f"{part:06d}.hdf5"

    def n_closed(self) -> int:
        """Return how many parts are there, up to the first that is not."""
        n_parts = 0
        while self.path(n_parts).exists():
            n_parts += 1
        return n_parts

    def merge(self, n_parts: int) -> None:
        """Copy the parts into one file, rename it into place and remove the folder.

        Raises: OSError, naming `outfile`, if it cannot be written; DataError for a bad part.
        """
        with replacing(self.outfile) as merged:
            with NewHDF5(merged):
                pass
            for part in range(n_parts):
                # Opened anew, since what HDF5 keeps of an open file grows with what it holds.
                with NewHDF5(merged, "a") as file, self._opened(part) as source:
                    for name in sorted(source, key=int):
                        h5py.h5o.copy(source.id, name.encode(), file.id, name.encode())
                        file.check()
        # A kill finds the folder whole or under the name of what the next run removes.
        with scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

    def _opened(self, part: int) -> h5py.File:
        try:
            return h5py.File(self.path(part), "r")
        except OSError as error:
            raise DataError(
                f"{self.path(part)}: damaged ({error}); remove it and repeat the command"
            ) from error

    def _strangers(self) -> list[str]:
        """Return the files that a run which was killed at its start does not leave."""
        names = os.listdir(self.folder)
        return [name for name in names if name != LOCK and not name.startswith(PREFIX)]

    def _begin(self) -> None:
        """Write down which run the parts belong to, or compare it."""
        path = self.folder / RUN
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(self._run), encoding="utf-8")
            return
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); remove its folder") from error
        other = [name for name in self._run if found.get(name) != self._run[name]]
        if other:
            raise DataError(
                f"{self.folder} holds parts of a run with other {', '.join(other)}: repeat that "
                "run's command, give another outfile, or remove the folder"
            )
