"""The format of bilm-tf, AllenNLP and simple_elmo: `options.json` and an HDF5 file of weights."""

import functools
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.options.model_options import EVALUATION, EXPORT_ID, ModelOptions
from bilm.options.run_options import load_model_options
from bilm.storage.formats.base import Identity, StoredModel
from bilm.storage.hdf5 import attribute, open_hdf5, strings
from bilm.storage.stored_tensors import Softmax, Tensors, hdf5_tensors
from bilm.support.model_files import CARD, HDF5_SUFFIXES, META, OPTIONS, SOFTMAX_ENDING, VOCABULARY

OPTIONS_262 = "options262.json"  # options with n_characters 262, which several weights may share
EXPECTED_OPTIONS = "options.json, beside the weights or the checkpoints of a run"
EXPECTED_WEIGHTS = (
    ".hdf5 file with the weights, or the checkpoints of a run, beside the options; name the file "
    "weights.hdf5, or choose it with --weights"
)


class BilmTf(StoredModel):
    """Options and HDF5 weights. Every path that no other format owns belongs to this one.

    The softmax of an export is `<stem>_softmax.hdf5`, with its words, beside the weights. Weights,
    options and softmax of one export share an id: they are renamed into place one after the other,
    and a kill in between leaves files of two exports whose shapes may be equal.
    """

    format = "bilm-tf"
    weight_names = ("*",)  # the last format that is tried
    companions = (VOCABULARY, CARD, META, f"{{stem}}{SOFTMAX_ENDING}")

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> Identity:
        """Choose options and weights, by name if there are several; see `_preferred` and
        `options_names`. Raises: WeightsError if one is missing, or if there are several."""
        # Options that are less deep than all others, in one folder.
        options = [p for p in paths if p.name.endswith((OPTIONS, OPTIONS_262))]
        depth = min((len(p.parts) for p in options), default=0)
        options = [p for p in options if len(p.parts) == depth]
        if len({p.parent for p in options}) != 1:
            raise _unexpected(options, EXPECTED_OPTIONS, where)

        # The weights beside them, and the options that belong to these.
        home = options[0].parent
        candidates = _preferred([p for p in paths if p.parent == home])
        if len(candidates) != 1:
            raise _unexpected(candidates, EXPECTED_WEIGHTS, where)
        weights = candidates[0]
        named = [p for p in map(weights.with_name, options_names(weights)) if p in options]
        if not named and len(options) != 1:
            raise _unexpected(options, EXPECTED_OPTIONS, where)
        return [*named, *options][0], weights

    def read_options(self) -> ModelOptions:
        options = super().read_options()
        if options.lexicon_encoder is not None:
            raise OptionsError(
                f"{self.options_file}: found lexicon_encoder, which HDF5 files cannot store; "
                "expected char_cnn or a model that reads words"
            )
        export_id = options.other.get(EXPORT_ID)
        if export_id is not None:  # options of a run have none
            self._check_export(self.options_file, export_id)
        return options

    @functools.cached_property
    def tensors(self) -> Tensors:
        return hdf5_tensors(self.weight_file)

    def use_softmax(self, path: Path) -> None:
        if not path.is_file():
            raise WeightsError(
                f"{path}: no such file; expected a softmax, which bilm export --include_softmax "
                "writes"
            )
        self.softmax_path = path.absolute()

    @functools.cached_property
    def softmax(self) -> Softmax | None:
        path = self.softmax_path
        if not path.is_file():
            return None
        self._check_export(path, read_export_id(path))
        with open_hdf5(path) as file:
            words = strings(file, "vocabulary")
        return Softmax(hdf5_tensors(path), len(words), words)

    def evaluation(self) -> Mapping[str, Any]:
        return load_model_options(self.options_file).other.get(EVALUATION, {})

    def _check_export(self, path: Path, id_: object) -> None:
        """Check that a file, with its export id, and the weights are of one export."""
        expected = read_export_id(self.weight_file)
        if id_ != expected:
            raise WeightsError(
                f"{path}: of another export ({id_ or 'unnamed'}) than {self.weight_file} "
                f"({expected or 'unnamed'}); export the model again with bilm export"
            )


def _preferred(files: list[PurePath]) -> list[PurePath]:
    """Return the weight files with the preferred kind of name, among the files of a folder."""
    weights = [p for p in files if p.suffix in HDF5_SUFFIXES and not p.stem.endswith("_softmax")]
    for stem in ("model", "weights", "*_weights"):
        preferred = [p for p in weights if fnmatchcase(p.stem, stem)]
        if preferred:
            return preferred
    return weights


def options_names(weight_file: PurePath) -> list[str]:
    """Return the names of the options that belong to weights, the preferred one first."""
    stems = weight_file.stem, weight_file.stem.removesuffix("_weights")
    return [*(f"{stem}_{OPTIONS}" for stem in dict.fromkeys(stems)), OPTIONS, OPTIONS_262]


def read_export_id(path: str | Path) -> str | None:
    """Return the id of an HDF5 file; None if another program or an older bilm wrote it."""
    with open_hdf5(path) as file:
        return attribute(file, EXPORT_ID)


def export_of(path: Path) -> str | None:
    """Return the id of the export that wrote options or an HDF5 file; None for another file."""
    with suppress(OptionsError, WeightsError):
        if path.suffix in HDF5_SUFFIXES:
            return read_export_id(path)
        return load_model_options(path).other.get(EXPORT_ID)
    return None


def _unexpected(paths: list[PurePath], expected: str, where: str | Path) -> WeightsError:
    listed = ", ".join(sorted(p.as_posix() for p in paths)) or "none"
    return WeightsError(f"{where}: found {listed}, expected one {expected}")
