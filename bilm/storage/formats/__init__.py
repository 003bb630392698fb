"""The formats of stored models, one class each; `base` contains their base class."""

from __future__ import annotations

import fnmatch
import glob
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
    """Return the format of the model in a folder or archive, and its files: the two paths that
    identify it, see `StoredModel.find`, then its other files. Raises: WeightsError if there is no
    model, or more than one."""
    paths = [path for path in paths if not path.name.startswith(".")]  # macOS adds ._model.hdf5
    for format_ in formats():
        identity = format_.find(paths, where)
        if identity is not None:
            options, weights = identity
            break
    home = options.parent
    names = [path.relative_to(home).as_posix() for path in paths if path.is_relative_to(home)]
    others: list[str] = []
    for pattern in format_.companions:
        others += fnmatch.filter(names, pattern.format(stem=glob.escape(weights.stem)))
    return format_, [options, weights, *(home / name for name in others)]
