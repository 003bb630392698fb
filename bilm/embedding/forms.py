"""The forms of vectors and the shares of a corpus, without importing NumPy or h5py."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

from bilm.errors import OptionsError

FORMATS = {".parquet": "parquet", ".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}  # by ending
HELP = {  # how Python reads each format
    "parquet": "a row per sentence, with a column of vectors per layer: pandas.read_parquet(FILE)",
    "npz": 'one array, numpy.load(FILE)["vectors"]; without --pool also "offsets": the rows of\n'
    "               sentence i are vectors[offsets[i] : offsets[i + 1]]; and the ids",
    "hdf5": "one dataset per sentence, named 0, 1, 2, ... or by ids: bilm.read_embeddings(FILE)",
}
PARTS = ".parts"  # ending of the folder, beside an output, that contains its finished parts
POOLS = ("none", "mean", "max")  # `collecting` implements them
MAX_SHARES = 100_000


class Share(NamedTuple):
    """One of `n` shares of a corpus of nearly equal size, in order: its `number`, from 0."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that "number/n" describes, such as "0/4". Raises: OptionsError."""
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not int(match[1]) < int(match[2]) <= MAX_SHARES:
            raise OptionsError(
                f"--shard {text}: expected i/n with the number i of the share, from 0 to n - 1, "
                "and the number n of shares, such as 0/4"
            )
        return cls(int(match[1]), int(match[2]))

    def file_name(self, output: str) -> str:
        """Return the name of this share's output: vectors-00000-of-00004.npz for vectors.npz."""
        ending = PurePosixPath(output).suffix
        return f"{output.removesuffix(ending)}-{self.number:05}-of-{self.n:05}{ending}"
