"""The folder of a run as others read it: its model, with options and vocabulary beside it."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm import weights
from bilm.errors import WeightsError
from bilm.files import replacing
from bilm.hdf5 import Held
from bilm.language_model import BiLM
from bilm.options import load_model_options

OPTIONS, VOCABULARY = "options.json", "vocab.txt"
PREFIX = "model.ckpt"
UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError)  # what TensorFlow raises
CHECKPOINT_FILE = re.escape(PREFIX) + r"-(\d+)\.(index|data-\d+-of-\d+)"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def checkpoint_paths(save_dir: str | Path) -> list[str]:
    """Give the paths of all checkpoints in a folder, whole or not, the latest first."""
    found = [
        re.fullmatch(CHECKPOINT_FILE, path.name) for path in Path(save_dir).glob(f"{PREFIX}-*")
    ]
    steps = sorted({int(match[1]) for match in found if match}, reverse=True)
    return [f"{save_dir}/{PREFIX}-{step}" for step in steps]


def latest_checkpoint(save_dir: str | Path) -> str:
    """Give the path of a folder's latest checkpoint, ours or the TensorFlow 1 reference's.

    Raises: WeightsError if the folder holds none.
    """
    if not Path(save_dir).is_dir():
        raise WeightsError(f"{save_dir}: no such folder; expected one that training has written")
    # A save that was cut short may leave a checkpoint without TensorFlow's list of them.
    path = tf.train.latest_checkpoint(str(save_dir)) or next(iter(checkpoint_paths(save_dir)), None)
    if path is None:
        raise WeightsError(f"{save_dir}: no whole checkpoint in this folder")
    return path


class StoredRun:
    """A run's latest checkpoint, of which nothing but names and shapes is read yet.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
    Attributes: `path` of the checkpoint, `options` of the model, and `n_tokens`, the words of its
        softmax.
    Raises: OptionsError, WeightsError.
    """

    def __init__(self, save_dir: str | Path):
        options = load_model_options(Path(save_dir) / OPTIONS)
        self.path = latest_checkpoint(save_dir)
        self._reader = open_checkpoint(self.path)
        self._shapes = self._reader.get_variable_to_shape_map()
        bias = next((n for n in checkpoint_names(weights.SOFTMAX + "b") if n in self._shapes), None)
        if bias is None:
            expected = "expected the checkpoint of a biLM's training"
            raise WeightsError(f"{self.path}: no softmax/b; {expected}")
        if len(self._shapes[bias]) != 1:
            raise WeightsError(
                f"{self.path}: softmax/b has shape {self._shapes[bias]}, expected 1-D"
            )
        self.n_tokens: int = self._shapes[bias][0]
        if options.bidirectional is None:
            both = any("RNN_1" in name for name in self._shapes)
            options = dataclasses.replace(options, bidirectional=both)
        weights.check_held(options, self._held(), self.path, self.n_tokens)
        self.options = options

    def _held(self) -> Held:
        """Count what the checkpoint holds. Raises: WeightsError if its files hold less."""
        path = Path(self.path)
        files = [p for p in path.parent.iterdir() if p.name.startswith(f"{path.name}.data-")]
        n_bytes = sum(p.stat().st_size for p in files or [path])
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        if sum(sizes) > n_bytes:  # a number takes a byte or more
            raise WeightsError(
                f"{path}: states {sum(sizes):,} numbers, but its files have {n_bytes:,} bytes"
            )
        return Held(len(sizes), sum(sizes))

    def assign(self, model: BiLM, only: Callable[[str], bool] = lambda name: True) -> None:
        """Set a model's variables, those whose stored names `only` takes.

        Raises: WeightsError, as `weights.assign` does or if the checkpoint is cut short.
        """
        with self._readable():
            read = self._reader.get_tensor
            weights.assign(model, self._shapes, read, self.path, checkpoint_names, only)

    def value(self, name: str) -> np.ndarray:
        """Give the value of a stored name. Raises: WeightsError if it cannot be read."""
        found = next((n for n in checkpoint_names(name) if n in self._shapes), None)
        if found is None:
            raise WeightsError(f"{self.path}: {name} is missing")
        with self._readable():
            return self._reader.get_tensor(found)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except UNREADABLE as error:
            raise WeightsError(f"{self.path}: not a whole checkpoint ({error})") from error


def load_run(save_dir: str | Path) -> BiLM:
    """Build the language model, softmax included, of a run's latest checkpoint.

    Args:
        save_dir: a folder with `options.json` and checkpoints of ours or of the TensorFlow 1
            reference.
    Raises: OptionsError, WeightsError.
    """
    run = StoredRun(save_dir)
    model = BiLM(run.options, run.n_tokens, softmax=True)
    model.build()
    run.assign(model)
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
