"""The folder of a run as others read it: its model, with options and vocabulary beside it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm import weights
from bilm.errors import WeightsError
from bilm.files import replacing
from bilm.language_model import BiLM
from bilm.options import load_model_options

OPTIONS, VOCABULARY = "options.json", "vocab.txt"
PREFIX = "model.ckpt"
UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError)  # what TensorFlow raises
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def latest_checkpoint(save_dir: str | Path) -> str:
    """Give the path of a folder's latest checkpoint, ours or the TensorFlow 1 reference's.

    Raises: WeightsError if the folder holds none.
    """
    if not Path(save_dir).is_dir():
        raise WeightsError(f"{save_dir}: no such folder; expected one that training has written")
    path = tf.train.latest_checkpoint(str(save_dir))
    if path is None:
        raise WeightsError(f"{save_dir}: no whole checkpoint in this folder")
    return path


def load_run(save_dir: str | Path) -> BiLM:
    """Build the language model, softmax included, of a run's latest checkpoint.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
    Raises: OptionsError, WeightsError.
    """
    options = load_model_options(Path(save_dir) / OPTIONS)
    path = latest_checkpoint(save_dir)
    reader = open_checkpoint(path)
    stored = reader.get_variable_to_shape_map()
    bias = next((n for n in checkpoint_names(weights.SOFTMAX + "b") if n in stored), None)
    if bias is None:
        raise WeightsError(f"{path}: no softmax/b; expected the checkpoint of a biLM's training")
    if options.bidirectional is None:
        both = any("RNN_1" in name for name in stored)
        options = dataclasses.replace(options, bidirectional=both)
    model = BiLM(options, n_tokens=stored[bias][0], softmax=True)
    model.build()
    try:
        weights.assign(model, stored, reader.get_tensor, path, names=checkpoint_names)
    except UNREADABLE as error:
        raise WeightsError(f"{path}: not a whole checkpoint ({error})") from error
    return model


def load_state(save_dir: str | Path, model: BiLM):
    """Give the LSTM states in which a run's latest checkpoint left its rows, and their number.

    Raises: WeightsError if the checkpoint holds none, as those of the TensorFlow 1 reference.
    """
    path = latest_checkpoint(save_dir)
    reader = open_checkpoint(path)
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("state/")]
    if not names:
        raise WeightsError(f"{path}: holds no LSTM states; only checkpoints of bilm's training do")
    arrays: list[np.ndarray] = [reader.get_tensor(f"state/{i}{SUFFIX}") for i in range(len(names))]
    return model.pack_state(arrays), len(arrays[0])


def checkpoint_names(name: str) -> list[str]:
    """Give the names that a stored name may have in our checkpoints or the reference's."""
    return [f"weights/{name.replace('/', '.S')}{SUFFIX}", *weights.tf1_names(name)]


def copy_vocabulary(vocab_file: str | Path, save_dir: str | Path) -> None:
    """Put the vocabulary beside the checkpoints."""
    with replacing(Path(save_dir) / VOCABULARY) as temporary:
        shutil.copyfile(vocab_file, temporary)


def open_checkpoint(path: str):
    """Give TensorFlow's reader of a checkpoint. Raises: WeightsError if there is none to read."""
    try:
        return tf.train.load_checkpoint(path)
    except (*UNREADABLE, ValueError) as error:
        raise WeightsError(f"{path}: not a whole checkpoint ({error})") from error
