"""The formats of models, and the format of the files at hand.

A format is a module with:

- `NAME`, for messages, and `HAS_SOFTMAX`, whether its models can predict words;
- `EXPECTS`, what tokens it was trained on;
- `PAIR`, the names, or patterns of names, that copies of its options and of its weights get;
- `find(paths, where)`: of the files of a folder or archive those of a model, None if they are of
  another format: a dict of paths by the names that copies of them get, those of the `PAIR` first;
- `pair(options_file, weight_file)`: the two paths, made of the first two found, that stand for the
  model from there on;
- `owns(weight_file)`: whether the second of the two is of this format;
- `files(options_file, weight_file)`: all files that the model is read from;
- `read_options(options_file, weight_file)`: its `ModelOptions`;
- `open_tensors(options_file, weight_file, options)`: its `Tensors`.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from types import ModuleType
from typing import NamedTuple

from bilm.errors import OptionsError
from bilm.options import ModelOptions
from bilm.storage.formats import bilm_tf, checkpoint, manylangs

FORMATS = (manylangs, checkpoint, bilm_tf)  # the last one takes what no other does


class Found(NamedTuple):
    """A model among files: its format, and its files by the names that copies of them get."""

    format: ModuleType
    files: dict[str, PurePath]

    def pair(self, folder: Path) -> tuple[Path, Path]:
        """Return the two paths that stand for the model, whose files lie in a folder."""
        options_file, weight_file, *_ = self.files.values()
        return self.format.pair(folder / options_file, folder / weight_file)


def find(paths: list[PurePath], where: Path) -> Found:
    """Return the files of a model among those of a folder or archive: see above.

    Raises: WeightsError if there is no model, or more than one.
    """
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    tried = ((format_, format_.find(paths, where)) for format_ in FORMATS)
    return next(Found(format_, files) for format_, files in tried if files)


def unpacked_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the two paths that stand for a model of which copies are in a folder."""
    for format_ in FORMATS:
        found = [next(folder.glob(name), None) for name in format_.PAIR]
        if None not in found:
            return format_.pair(*found)
    return None


def format_of(weight_file: str | Path) -> ModuleType:
    """Return the format whose second file this is."""
    return next(format_ for format_ in FORMATS if format_.owns(Path(weight_file)))


def is_run(weight_file: Path) -> bool:
    """Return whether the second of the two paths that stand for a model is a run's."""
    return format_of(weight_file) is checkpoint


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


def refuse_as_run(weight_file: Path) -> None:
    """Refuse a model that is no run, and that no run can be made of. Raises: OptionsError."""
    found = format_of(weight_file)
    if not found.HAS_SOFTMAX:
        raise OptionsError(
            f"{weight_file.parent}: an {found.NAME} model, not a run; it has no softmax "
            "to measure, and cannot be exported to the HDF5 format of bilm-tf, in which its word "
            "table and its lexicon of code points have no place"
        )
