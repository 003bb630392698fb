"""Writing one HDF5 file in closed parts, which survive an interruption."""

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
    """The folder `<outfile>.parts` with part files 0, 1, 2, ..., each whole or missing.

    A context manager: inside the block no other process or thread can write the same output.

    Args:
        outfile: the file into which the parts are merged.
        run: the settings that shape the result, by name, as JSON values. An existing folder is
            continued only with the settings that it was created with.
    Raises: on entry, DataError if another process is writing the folder, or if it was created with
        other settings; OSError if it cannot be written.
    """

    def __init__(self, outfile: str | os.PathLike, run: dict[str, object]):
        self.outfile, self._run = output_path(outfile), run
        self.folder = beside(self.outfile, ".parts")

    def __enter__(self) -> Parts:
        remove_leftovers(self.outfile)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / RUN).exists() and self._foreign_files():
            raise DataError(
                f"{self.folder}: not a folder of parts; remove it, or choose another output"
            )
        self._lock = hold(self.folder / LOCK, os.O_CREAT)
        if self._lock is None:
            raise DataError(
                f"{self.folder}: another process is writing {self.outfile}; wait until it ends, "
                "or choose another output"
            )
        try:
            self._check_run()
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
        """Return the number of parts up to the first that is missing."""
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
                # Opened anew per part: the memory that HDF5 uses for an open file grows with it.
                with NewHDF5(merged, "a") as file, self._open_part(part) as source:
                    for name in sorted(source, key=int):
                        h5py.h5o.copy(source.id, name.encode(), file.id, name.encode())
                        file.check()
        # After a kill, the folder is either whole or in the leftovers that the next run removes.
        with scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

    def _open_part(self, part: int) -> h5py.File:
        try:
            return h5py.File(self.path(part), "r")
        except OSError as error:
            raise DataError(
                f"{self.path(part)}: damaged ({error}); remove it and repeat the command"
            ) from error

    def _foreign_files(self) -> list[str]:
        """Return the files that a run does not leave when it is killed at its start."""
        names = os.listdir(self.folder)
        return [name for name in names if name != LOCK and not name.startswith(PREFIX)]

    def _check_run(self) -> None:
        """Store the settings in a new folder, or compare them with those stored."""
        path = self.folder / RUN
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(self._run), encoding="utf-8")
            return
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); remove the folder") from error
        other = [name for name in self._run if found.get(name) != self._run[name]]
        if other:
            raise DataError(
                f"{self.folder}: holds parts of a run with other {', '.join(other)}; repeat the "
                "command of that run, choose another output, or remove the folder"
            )
