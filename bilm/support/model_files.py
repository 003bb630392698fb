"""The names of the files of stored models in all formats, which outputs must not replace."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from bilm.errors import DataError
from bilm.support.files import keep_inputs, output_path
from bilm.support.remote import check_writable
from bilm.support.urls import is_url

OPTIONS, VOCABULARY, WEIGHTS = "options.json", "vocab.txt", "weights.hdf5"
CARD, META = "README.md", "meta.json"
CHECKPOINT, CHECKPOINT_LIST = "model.ckpt", "checkpoint"  # TensorFlow's prefix, and its list
CONFIG, ENCODER, EMBEDDER = "config.json", "encoder.pkl", "token_embedder.pkl"  # ELMoForManyLangs
ALLENNLP_WEIGHTS, ALLENNLP_FILES = "weights.th", "fta"  # and the folder of "files to archive"
ALLENNLP_BEST = "best.th"  # in the folder of a training
RENAME_STATE_DICT = (
    f"rename the state dict of a PyTorch model that contains AllenNLP's Elmo to {ALLENNLP_WEIGHTS}"
)
HUB_GRAPH, HUB_MARK = "saved_model.pb", "tfhub_module.pb"
HUB_INDEX = "variables/variables.index"
LEXICONS = {"words": "word.dic", "characters": "char.dic"}
HDF5_SUFFIXES = (".hdf5", ".h5")
SOFTMAX_ENDING = "_softmax.hdf5"
# Other files of a run, and the folder of its TensorBoard logs.
MEASURED, TUNING, AUTO, HISTORY, LOCK, LOGS = (
    "heldout.json", "finetuning.json", "auto.json", "history.csv", ".lock", "logs"
)  # fmt: skip
MAX_JSON_DEPTH = 4  # parts of the path from an ELMoForManyLangs model to its configuration

# A folder with a file of each of the first two kinds contains a model. HDF5 files of other names
# are of the second kind if they contain weights.
OPTIONS_NAMES = (OPTIONS, f"*_{OPTIONS}", CONFIG, CHECKPOINT_LIST)
WEIGHTS_NAMES = (
    f"{CHECKPOINT}-*", "model.hdf5", "*weights*.hdf5", f"*{SOFTMAX_ENDING}", ENCODER, EMBEDDER,
    ALLENNLP_WEIGHTS, ALLENNLP_BEST, LOCK,
)  # fmt: skip
OTHER_NAMES = (
    VOCABULARY, CARD, f"*_{CARD}", META, MEASURED, TUNING, AUTO, HISTORY, *LEXICONS.values()
)  # fmt: skip


def protect(output: str | os.PathLike, *inputs: str | os.PathLike | None) -> None:
    """Check that an output does not replace an input, or a file of a run or other stored model; for
    a URL, that the store accepts an upload.

    Raises: DataError if it does, or if a URL cannot be written.
    """
    keep_inputs(output, *inputs)
    if is_url(output):
        check_writable(output)
        return
    target = output_path(output)
    if not target.is_file():
        return
    folder = _model_of(target)
    if folder is not None:
        raise DataError(
            f"{output}: is a file of the model in {folder}; choose another name, or remove "
            "the file first"
        )


def is_model_file(path: Path) -> bool:
    """Return whether a file belongs to a run or other stored model."""
    return path.is_file() and _model_of(path) is not None


def _model_of(target: Path) -> Path | None:
    """Return the folder of the model that a file belongs to, None if it belongs to none."""
    patterns = (*OPTIONS_NAMES, *WEIGHTS_NAMES, *OTHER_NAMES)
    is_named = _matching([target.name], patterns) or _has_weights(target)
    if is_named and _is_model(target.parent):
        return target.parent
    for folder in list(target.parents)[:MAX_JSON_DEPTH]:
        is_configured = (folder / CONFIG).is_file() and (folder / ENCODER).is_file()
        if is_configured and target.suffix == ".json":
            return folder
        if folder.name == LOGS and _is_model(folder.parent):
            return folder.parent
    return None


def _is_model(folder: Path) -> bool:
    paths = list(folder.iterdir())
    names = [path.name for path in paths]
    return _matching(names, OPTIONS_NAMES) and (
        _matching(names, WEIGHTS_NAMES) or any(map(_has_weights, paths))
    )


def _has_weights(path: Path) -> bool:
    """Return whether an HDF5 file contains the weights of a biLM or a softmax."""
    if path.suffix not in HDF5_SUFFIXES or not path.is_file():
        return False
    import h5py

    try:
        with h5py.File(path) as file:
            return "RNN_0/RNN" in file or "softmax/W" in file
    except OSError:  # not HDF5
        return False


def _matching(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)
