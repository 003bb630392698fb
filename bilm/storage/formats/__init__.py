"""The formats of stored models, one class each; `base` contains their base class."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bilm.storage.formats.base import StoredModel

HELP = (  # of formats besides those of bilm and bilm-tf, in lines
    "a model of AllenNLP (model.tar.gz, weights.th), a TensorFlow Hub module, a model",
    "of ELMoForManyLangs, as an archive or folder",
)


def formats() -> tuple[type[StoredModel], ...]:
    """Return the formats in the order of trial; the last one owns all other paths."""
    from bilm.storage.formats.allennlp import AllenNlp
    from bilm.storage.formats.bilm_tf import BilmTf
    from bilm.storage.formats.manylangs import ManyLangs
    from bilm.storage.formats.run import Run
    from bilm.storage.formats.tfhub import TfHub

    return ManyLangs, TfHub, Run, AllenNlp, BilmTf


def find(paths: list[PurePath], where: str | Path) -> tuple[type[StoredModel], list[PurePath]]:
    """Return the format of the model in a folder or archive, and the result of `StoredModel.find`.
    Raises: WeightsError if there is no model, or more than one."""
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    for format_ in formats():
        files = format_.find(paths, where)
        if files is not None:
            return format_, files
    raise AssertionError("the last format raises an error instead of returning None")
