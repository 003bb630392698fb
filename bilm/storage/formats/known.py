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
    for format_ in formats():
        files = format_.find(paths, where)
        if files is not None:
            return format_, files
    raise AssertionError("the last format raises an error instead of returning None")


def model_at(options_file: Path, weight_file: Path) -> Format:
    """Return the model that two paths identify."""
    format_ = next(format_ for format_ in formats() if format_.owns(weight_file))
    return format_(options_file, weight_file)
