"""Recognizes models of other programs, which bilm cannot read, for a helpful error message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from bilm.support.model_files import RENAME_STATE_DICT

EXPECTED = "expected options.json with HDF5 weights, or an ELMoForManyLangs or AllenNLP model"


class Foreign(NamedTuple):
    """A kind of model: a test of the file names, its description, and advice to the user."""

    holds: Callable[[set[str]], bool]
    name: str
    advice: str


PYTORCH = (".pt", ".pth", ".th", ".pkl", ".ckpt", ".safetensors", "pytorch_model.bin")
KINDS = (
    Foreign(
        lambda names: {"saved_model.pb", "tfhub_module.pb"} <= names,
        "a TensorFlow Hub module",
        "name the folder that contains saved_model.pb and variables/",
    ),
    Foreign(
        lambda names: "saved_model.pb" in names,
        "a TensorFlow SavedModel",
        "load it with tf.saved_model.load",
    ),
    Foreign(
        lambda names: "meta.json" in names and bool(names & {"config.cfg", "tokenizer", "vocab"}),
        "a spaCy model",
        "load it with spacy.load",
    ),
    Foreign(
        lambda names: any(name.endswith((".keras", ".weights.h5")) for name in names),
        "a Keras model",
        "load it with keras.models.load_model",
    ),
    Foreign(
        lambda names: any(name.endswith(PYTORCH) for name in names),
        "a PyTorch model of another kind than ELMoForManyLangs and AllenNLP",
        f"{RENAME_STATE_DICT}; convert others to the HDF5 format of bilm-tf",
    ),
)


def what_it_is(paths: list[PurePath]) -> str | None:
    """Return a description of the model in a folder or archive, and advice; None if unknown."""
    names = {part for path in paths for part in path.parts}
    found = next((kind for kind in KINDS if kind.holds(names)), None)
    return found and f"found {found.name}; {EXPECTED}; {found.advice}"
