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

# A folder with a file of each of the first two kinds contains a model.
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
    a URL, that it can be written.

    Raises: DataError if it does, or if a URL cannot be written.
    """
    keep_inputs(output, *inputs)
    if is_url(output):
        check_writable(output)
    elif is_model_file(target := output_path(output)):
        raise DataError(
            f"{output}: is a file of the model in {target.parent}; choose another name, or remove "
            "the file first"
        )


def is_model_file(path: Path) -> bool:
    """Return whether a file belongs to a run or other stored model, judged by the names of the
    files in its folder."""
    if not path.is_file():
        return False
    names = os.listdir(path.parent)
    is_model = _matching(names, OPTIONS_NAMES) and _matching(names, WEIGHTS_NAMES)
    return is_model and _matching([path.name], OPTIONS_NAMES + WEIGHTS_NAMES + OTHER_NAMES)


def _matching(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)
