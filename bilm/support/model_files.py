"""The names of the files of stored models in all formats, which outputs must not replace."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatch

from bilm.errors import DataError
from bilm.support.files import keep_inputs, output_path

OPTIONS, VOCABULARY = "options.json", "vocab.txt"
CARD, META = "README.md", "meta.json"
CHECKPOINT, CHECKPOINT_LIST = "model.ckpt", "checkpoint"  # TensorFlow's prefix, and its list
CONFIG, ENCODER, EMBEDDER = "config.json", "encoder.pkl", "token_embedder.pkl"  # ELMoForManyLangs
ALLENNLP_WEIGHTS, ALLENNLP_FILES = "weights.th", "fta"  # and the folder of "files to archive"
HUB_GRAPH, HUB_MARK = "saved_model.pb", "tfhub_module.pb"
HUB_INDEX = "variables/variables.index"
LEXICONS = {"words": "word.dic", "characters": "char.dic"}
SOFTMAX_ENDING = "_softmax.hdf5"

# A folder with a file of each of the first two kinds contains a model.
OPTIONS_NAMES = (OPTIONS, f"*_{OPTIONS}", CONFIG, CHECKPOINT_LIST)
WEIGHTS_NAMES = (
    f"{CHECKPOINT}-*", "model.hdf5", "*weights*.hdf5", f"*{SOFTMAX_ENDING}", ENCODER, EMBEDDER,
    ALLENNLP_WEIGHTS,
)  # fmt: skip
OTHER_NAMES = (VOCABULARY, "heldout.json", "history.csv", *LEXICONS.values())


def protect(output: str | os.PathLike, *inputs: str | os.PathLike | None) -> None:
    """Check that an output does not replace an input, or a file of a run or other stored model.

    Raises: DataError if it does.
    """
    keep_inputs(output, *inputs)
    target = output_path(output)
    if not target.is_file():
        return
    names = [target.name, *(entry.name for entry in target.parent.iterdir())]
    has_options, has_weights = (_matching(names, p) for p in (OPTIONS_NAMES, WEIGHTS_NAMES))
    patterns = (*OPTIONS_NAMES, *WEIGHTS_NAMES, *OTHER_NAMES)
    if has_options and has_weights and _matching([target.name], patterns):
        raise DataError(
            f"{output}: is a file of the model in {target.parent}; choose another name, or remove "
            "the file first"
        )


def _matching(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)
