"""The registry of formats."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath

from bilm.errors import WeightsError
from bilm.storage.formats.allennlp import AllenNlp
from bilm.storage.formats.base import Format
from bilm.storage.formats.bilm_tf import OPTIONS_262, BilmTf
from bilm.storage.formats.manylangs import ManyLangs
from bilm.storage.formats.run import Run
from bilm.storage.formats.tfhub import TfHub
from bilm.support.model_files import CONFIG, HDF5_SUFFIXES, OPTIONS, SOFTMAX_ENDING

TEXT_SUFFIXES = (".json", ".txt", ".md")  # of files without weights
OPTIONS_ENDINGS = (OPTIONS, OPTIONS_262, CONFIG)

# They are tried in this order; the last one owns all other paths.
FORMATS: tuple[type[Format], ...] = (ManyLangs, TfHub, Run, AllenNlp, BilmTf)


def find(paths: list[PurePath], where: str | Path) -> tuple[type[Format], dict[str, PurePath]]:
    """Find the model among the files of a folder or archive.

    Returns: its format, and the result of `Format.find`.
    Raises: WeightsError if there is no model, or more than one.
    """
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    tried = ((format_, format_.find(paths, where)) for format_ in FORMATS)
    return next((format_, files) for format_, files in tried if files)


def narrowed(
    paths: list[PurePath], part: str | None, where: str | Path
) -> tuple[PurePath, list[PurePath]]:
    """Remove the files of other models.

    Args:
        paths: relative to a folder or archive.
        part: a folder; or the weights of one model, with or without `.hdf5` or `_weights.hdf5`,
            which may share the options; None for all files.
        where: the folder or archive, for the message.
    Returns: a folder in it, or the top; and the files, relative to that.
    Raises: WeightsError if `part` is neither.
    """
    top = PurePosixPath()
    if part is None:
        return top, paths
    place = PurePosixPath(part.strip("/"))
    inside = [path for path in paths if place in path.parents]
    if any(path.suffix not in TEXT_SUFFIXES for path in inside):
        has_options = any(path.name.endswith(OPTIONS_ENDINGS) for path in inside)
        above = [p for p in paths if p.parent in place.parents and p.name.endswith(OPTIONS)]
        if above and not has_options:
            return top, [*inside, *above]
        return place, [path.relative_to(place) for path in inside]
    names = [place.parent / f"{place.name}{ending}" for ending in ("", ".hdf5", "_weights.hdf5")]
    chosen = next((name for name in names if name in paths and name.suffix in HDF5_SUFFIXES), None)
    if chosen is None:
        raise WeightsError(f"{where}#{part}: contains neither a folder nor weights of this name")
    kept = chosen.name, f"{chosen.stem}{SOFTMAX_ENDING}"
    beside = [path for path in paths if path.parent == chosen.parent]
    return top, [p for p in beside if p.suffix not in HDF5_SUFFIXES or p.name in kept]


def unpacked(folder: Path) -> Format | None:
    """Return the model whose files were copied to a folder under the names of its format."""
    for format_ in FORMATS:
        options_file, weight_file = (next(folder.glob(name), None) for name in format_.copies)
        if options_file is not None and weight_file is not None:
            return format_.found(options_file, weight_file)
    return None


def model_at(options_file: Path, weight_file: Path) -> Format:
    """Return the model that two paths identify."""
    format_ = next(format_ for format_ in FORMATS if format_.owns(weight_file))
    return format_(options_file, weight_file)
