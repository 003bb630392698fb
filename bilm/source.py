"""What may stand for a stored model: two files, a folder, an archive, a URL, a name."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import WeightsError


def resolve(options_file: str | Path, weight_file: str | Path | None = None) -> tuple[Path, Path]:
    """Give the paths of the options and of the weights.

    Raises: WeightsError if they cannot be told.
    """
    if weight_file is None:
        raise WeightsError(f"{options_file}: no weight file given")
    return Path(options_file), Path(weight_file)
