"""One HDF5 file, written as closed parts that survive an interruption."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import h5py

from bilm.errors import DataError
from bilm.files import replacing

RUN = "run.json"


class Parts:
    """The folder `<outfile>.parts`: part files 0, 1, 2, ..., each there whole or not at all.

    Args:
        outfile: what the parts will be merged into.
        run: what shapes the result, by name, as JSON has it. A folder that is there goes on only
            with the run that it was made for.
    Raises: DataError if the folder belongs to another run.
    """

    def __init__(self, outfile: Path, run: dict[str, object]):
        self.outfile = outfile
        self.folder = outfile.with_name(outfile.name + ".parts")
        self.folder.mkdir(parents=True, exist_ok=True)
        for stale in self.folder.glob(".*.part"):  # what a killed process was writing
            stale.unlink()
        if (self.folder / RUN).exists():
            self._compare(run)
        elif any(self.folder.iterdir()):
            raise DataError(f"{self.folder} is no folder of parts; remove it or change outfile")
        else:
            with replacing(self.folder / RUN) as temporary:
                temporary.write_text(json.dumps(run), encoding="utf-8")

    def path(self, part: int) -> Path:
        """Give the path of a part."""
        return self.folder / f"{part:06d}.hdf5"

    def n_closed(self) -> int:
        """Give how many parts are there, up to the first that is not."""
        n_parts = 0
        while self.path(n_parts).exists():
            n_parts += 1
        return n_parts

    def merge(self, n_parts: int) -> None:
        """Copy the parts into one file, rename it into place and remove the folder."""
        merged = self.folder / "merged"
        with replacing(merged) as temporary:
            h5py.File(temporary, "w").close()
            for part in range(n_parts):
                # Opened anew, since what HDF5 keeps of an open file grows with what it holds.
                with h5py.File(temporary, "a") as file, h5py.File(self.path(part)) as source:
                    for name in sorted(source, key=int):
                        h5py.h5o.copy(source.id, name.encode(), file.id, name.encode())
        os.replace(merged, self.outfile)
        shutil.rmtree(self.folder)

    def _compare(self, run: dict[str, object]) -> None:
        found = json.loads((self.folder / RUN).read_text(encoding="utf-8"))
        other = [name for name in run if found.get(name) != run[name]]
        if other:
            raise DataError(
                f"{self.folder} holds parts of a run with other {', '.join(other)}: repeat that "
                "run's command, give another outfile, or remove the folder"
            )
