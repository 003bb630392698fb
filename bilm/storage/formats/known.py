"""The formats of models, and the format of the files at hand.

A format is a module with:

- `NAME`, for messages, and `HAS_SOFTMAX`, whether its models can predict words;
- `PAIR`, the names that copies of its file of options and of its file of weights get;
- `find(paths, where)`: of the files of a folder or archive those of a model, None if they are of
  another format: a dict of paths by the names that copies of them get. The first two are the
  `PAIR`, which stands for the model from there on;
- `owns(weight_file)`: whether the second of two files is of this format;
- `files(options_file, weight_file)`: all files that the model is read from;
- `read_options(options_file, weight_file)`: its `ModelOptions`;
- `open_tensors(options_file, weight_file, options)`: its `Tensors`.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from types import ModuleType

from bilm.errors import OptionsError
from bilm.options import ModelOptions
from bilm.storage.formats import bilm_tf, manylangs

FORMATS = (manylangs, bilm_tf)  # the last one takes what no other does


def find(paths: list[PurePath], where: Path) -> dict[str, PurePath]:
    """Return the files of a model among those of a folder or archive: see above.

    Raises: WeightsError if there is no model, or more than one.
    """
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    return next(filter(None, (format_.find(paths, where) for format_ in FORMATS)))


def unpacked_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the two files that stand for a model of which copies are in a folder."""
    pairs = [tuple(folder / name for name in format_.PAIR) for format_ in FORMATS]
    return next((pair for pair in pairs if all(path.exists() for path in pair)), None)


def format_of(weight_file: str | Path) -> ModuleType:
    """Return the format whose second file this is."""
    return next(format_ for format_ in FORMATS if format_.owns(Path(weight_file)))


def model_files(options_file: Path, weight_file: Path) -> list[Path]:
    """Return all files that a model is read from."""
    return format_of(weight_file).files(options_file, weight_file)


def read_options(options_file: Path, weight_file: Path) -> ModelOptions:
    """Read the options of a stored model; what they leave open the weights decide.

    Raises: OptionsError; WeightsError, also if the two files come from two exports.
    """
    return format_of(weight_file).read_options(options_file, weight_file)


def require_softmax(weight_file: Path, purpose: str) -> None:
    """Refuse a model whose format has no words to predict. Raises: OptionsError."""
    found = format_of(weight_file)
    if not found.HAS_SOFTMAX:
        raise OptionsError(
            f"{weight_file.parent}: an {found.NAME} model, which has no softmax for this package "
            f"to read; it gives vectors, but cannot {purpose}"
        )


def refuse_as_run(folder: Path) -> None:
    """Refuse a model that is no run, and that no run can be made of. Raises: OptionsError."""
    for found in FORMATS:
        if not found.HAS_SOFTMAX and all((folder / name).exists() for name in found.PAIR):
            raise OptionsError(
                f"{folder}: an {found.NAME} model, not a run; it has no softmax to measure, and "
                "cannot be exported to the HDF5 format of bilm-tf, in which its word table and "
                "its lexicon of code points have no place"
            )
