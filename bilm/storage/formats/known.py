"""The registry of formats, which are imported when a model is looked for among all of them."""

from __future__ import annotations

from pathlib import Path, PurePath

from bilm.storage.formats.base import Format


def formats() -> tuple[type[Format], ...]:
    """Return the formats in the order of trial; the last one owns all other paths."""
    from bilm.storage.formats.allennlp import AllenNlp
    from bilm.storage.formats.bilm_tf import BilmTf
    from bilm.storage.formats.manylangs import ManyLangs
    from bilm.storage.formats.run import Run
    from bilm.storage.formats.tfhub import TfHub

    return ManyLangs, TfHub, Run, AllenNlp, BilmTf


def find(paths: list[PurePath], where: str | Path) -> tuple[type[Format], dict[str, PurePath]]:
    """Find the model among the files of a folder or archive.

    Returns: its format, and the result of `Format.find`.
    Raises: WeightsError if there is no model, or more than one.
    """
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    tried = ((format_, format_.find(paths, where)) for format_ in formats())
    return next((format_, files) for format_, files in tried if files)


def unpacked(folder: Path) -> Format | None:
    """Return the model whose files were copied to a folder under the names of its format."""
    for format_ in formats():
        options_file, weight_file = (next(folder.glob(name), None) for name in format_.copies)
        if options_file is not None and weight_file is not None:
            return format_.found(options_file, weight_file)
    return None


def model_at(options_file: Path, weight_file: Path) -> Format:
    """Return the model that two paths identify."""
    format_ = next(format_ for format_ in formats() if format_.owns(weight_file))
    return format_(options_file, weight_file)
