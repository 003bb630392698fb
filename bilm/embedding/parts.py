"""Writing one file in closed parts, which survive an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bilm.errors import DataError
from bilm.files import LOCK, PREFIX, beside, hold, output_path, remove_leftovers, replacing, scratch

RUN = "run.json"


class Parts:
    """The folder `<outfile>.parts` with part files 0, 1, 2, ..., each whole or missing.

    A context manager: inside the block no other process or thread can write the same output.

    Args:
        outfile: the file into which the parts are merged.
        run: the settings that shape the result, by name, as JSON values. An existing folder is
            continued only with the settings that it was created with.
        ending: of the names of the parts.
    Raises: on entry, DataError if another process is writing the folder, or if it was created with
        other settings; OSError if it cannot be written.
    """

    def __init__(self, outfile: str | os.PathLike, run: dict[str, object], ending: str = ".hdf5"):
        self.outfile, self._run, self._ending = output_path(outfile), run, ending
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
        return self.folder / f"{part:06d}{self._ending}"

    def n_closed(self) -> int:
        """Return the number of parts up to the first that is missing."""
        n_parts = 0
        while self.path(n_parts).exists():
            n_parts += 1
        return n_parts

    def merge(self, n_parts: int, write: Callable[[Path, list[Path]], None]) -> None:
        """Have the parts written into one file, rename it into place and remove the folder.

        Args:
            n_parts: how many there are.
            write: is called with the temporary name of the file and the paths of the parts.
        Raises: OSError, naming `outfile`, if it cannot be written; DataError for a bad part.
        """
        with replacing(self.outfile) as merged:
            write(merged, [self.path(part) for part in range(n_parts)])
        # After a kill, the folder is either whole or in the leftovers that the next run removes.
        with scratch(self.outfile) as folder:
            os.rename(self.folder, folder / "parts")

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


def damaged(part: Path, reason: object) -> DataError:
    """Return the error for a part that cannot be read."""
    return DataError(f"{part}: damaged ({reason}); remove it and repeat the command")
