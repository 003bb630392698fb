"""The format of bilm-tf, AllenNLP and simple_elmo: `options.json` and an HDF5 file of weights."""

from __future__ import annotations

from pathlib import Path, PurePath

from bilm.errors import OptionsError, WeightsError
from bilm.options import ModelOptions, load_model_options
from bilm.storage import names
from bilm.storage.export_id import check_same_export
from bilm.storage.formats.foreign import what_it_is
from bilm.storage.tensors import HDF5Tensors

NAME = "bilm-tf"
HAS_SOFTMAX = True
EXPECTS = "words tokenized as the text that the model was trained on, their case kept"
CARD, META = "README.md", "meta.json"
PAIR = ("options.json", "weights.hdf5")
ALLENNLP_FOLDER = "fta"  # "files to archive"
HDF5_SUFFIXES = (".hdf5", ".h5")
EXPECTED_OPTIONS = "options.json, with weights or the checkpoints of a run beside it"
EXPECTED_WEIGHTS = (
    ".hdf5 file with the weights, or the checkpoints of a run, beside the options; name the file "
    "weights.hdf5"
)


def find(paths: list[PurePath], where: Path) -> dict[str, PurePath]:
    """Choose the two files: see `bilm.storage.locate.resolve`.

    Raises: WeightsError if they are not there, which says what else is.
    """
    options = [p for p in paths if p.name.endswith("options.json") and len(p.parts) <= 2]
    options = [p for p in options if len(p.parts) == 1] or options
    if not options and any(p.parent.name == ALLENNLP_FOLDER for p in paths):
        return _of_allennlp(paths, where)
    if len({p.parent for p in options}) != 1:
        _only(options, EXPECTED_OPTIONS, where, paths)
    beside = [p for p in paths if p.parent == options[0].parent and p.suffix in HDF5_SUFFIXES]
    weights = [p for p in beside if not p.stem.endswith("_softmax")]
    preferred = (
        [p for p in weights if p.stem == "model"],
        [p for p in weights if p.stem == "weights"],
        [p for p in weights if p.stem.endswith("_weights")],
        weights,
    )
    chosen = _only(next(filter(None, preferred), []), EXPECTED_WEIGHTS, where, paths)
    stems = chosen.stem, chosen.stem.removesuffix("_weights")
    named = [chosen.with_name(f"{stem}_options.json") for stem in stems]
    named = [p for p in (*named, chosen.with_name("options.json")) if p in options]
    its_options = named[0] if named else _only(options, EXPECTED_OPTIONS, where, paths)
    found = dict(zip(PAIR, (its_options, chosen), strict=True))
    return found | _companions(chosen, paths)


def _companions(weights: PurePath, paths: list[PurePath]) -> dict[str, PurePath]:
    """Return what may lie beside the weights: their softmax, its words, what is said of them."""
    beside = {
        "weights_softmax.hdf5": weights.with_name(f"{weights.stem}_softmax.hdf5"),
        **{name: weights.with_name(name) for name in ("vocab.txt", CARD, META)},
    }
    return {name: path for name, path in beside.items() if path in paths}


def _of_allennlp(paths: list[PurePath], where: Path) -> dict[str, PurePath]:
    """Choose the two files in an AllenNLP archive, which has them under their keys of its config.

    Such a key is `model.text_field_embedder.token_embedders.elmo.options_file`.
    """
    inside = [p for p in paths if p.parent.name == ALLENNLP_FOLDER]
    options = [p for p in inside if p.name.endswith(("options_file", "options.json"))]
    weights = [p for p in inside if p.name.endswith(("weight_file", *HDF5_SUFFIXES))]
    chosen = (
        _only(options, "file of options in fta/", where, paths),
        _only(weights, "file of weights in fta/", where, paths),
    )
    return dict(zip(PAIR, chosen, strict=True))


def pair(options_file: Path, weight_file: Path) -> tuple[Path, Path]:
    """Return the two files themselves."""
    return options_file, weight_file


def owns(weight_file: Path) -> bool:
    """Return True: what no other format owns is taken for HDF5."""
    return True


def files(options_file: Path, weight_file: Path) -> list[Path]:
    """Return the two files."""
    return [options_file, weight_file]


def read_options(options_file: Path, weight_file: Path) -> ModelOptions:
    """Read the options; where they do not say, the weights tell how many directions there are.

    Raises: OptionsError; WeightsError, also if the two files come from two exports.
    """
    options = load_model_options(options_file)
    if options.lexicon_encoder is not None:
        raise OptionsError(f"{options_file}: lexicon_encoder: HDF5 files hold no such model")
    options = names.with_directions(options, lambda: names.names_in(weight_file))
    check_same_export(options, options_file, weight_file)
    return options


def open_tensors(options_file: Path, weight_file: Path, options: ModelOptions) -> HDF5Tensors:
    """Open the weights. Raises: WeightsError."""
    return HDF5Tensors(weight_file)


def _only(found: list[PurePath], expected: str, where: Path, paths: list[PurePath]) -> PurePath:
    if len(found) != 1:
        foreign = what_it_is(paths) if not found else None
        if foreign is not None:
            raise WeightsError(f"{where}: {foreign}")
        listed = ", ".join(sorted(p.as_posix() for p in found)) or "none"
        raise WeightsError(f"{where}: found {listed}, expected one {expected}")
    return found[0]
