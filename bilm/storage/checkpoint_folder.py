"""The checkpoints of a folder: which there are, which one is whole, writing them in turn."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.errors import WeightsError
from bilm.files import replacing

T = TypeVar("T")

PREFIX = "model.ckpt"
LIST = "checkpoint"  # names the latest one and all: what TensorFlow's own functions look for
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError)  # what TensorFlow raises
CHECKPOINT_FILE = re.escape(PREFIX) + r"-(\d+)\.(index|data-\d+-of-\d+)"
UNFINISHED = re.escape(PREFIX) + r"-\d+_temp"  # the folder that TensorFlow first writes to
MAY_BE_INFINITE = f"best{SUFFIX}"  # of the numbers in checkpoints of ours: nothing was measured yet


class CheckpointFolder:
    """Writes checkpoints to a folder and keeps the latest of them.

    TensorFlow's CheckpointManager takes the folder's name for a pattern when it removes files: in
    `run?` it would remove those of `run1`. Here nothing is removed but what has our names.

    Args:
        folder: made if it is not there.
        keep: how many checkpoints stay.
    """

    def __init__(self, folder: str | Path, keep: int):
        self.folder, self.keep = Path(folder), keep

    def path(self, step: int) -> str:
        """Return the path of a step's checkpoint, without the endings of its files."""
        return f"{self.folder}/{PREFIX}-{step}"

    def write(self, checkpoint: tf.train.Checkpoint, step: int) -> str:
        """Write a checkpoint, whole or not at all; list it and remove what is too many.

        Returns: its path.
        Raises: WeightsError if it cannot be written; those before it are not touched then.
        """
        path = self.path(step)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            checkpoint.write(path)
            # Later ones were not whole: training went on from before them.
            paths = checkpoint_paths(self.folder)
            kept = paths[paths.index(path) :][: self.keep]
            self._write_list(kept)
        except (tf.errors.OpError, OSError) as error:
            shutil.rmtree(f"{path}_temp", ignore_errors=True)
            _remove(path)
            last = next(iter(checkpoint_paths(self.folder)), "none")
            raise WeightsError(
                f"{path}: cannot be saved: {reason(error)}; the last checkpoint: {last}"
            ) from error
        for old in paths:
            if old not in kept:
                _remove(old)
        return path

    def _write_list(self, paths: list[str]) -> None:
        names = [os.path.basename(path) for path in paths]
        state = tf.compat.v1.train.generate_checkpoint_state_proto(
            str(self.folder), names[0], names[::-1]
        )
        with replacing(self.folder / LIST) as temporary:
            temporary.write_text(str(state), encoding="utf-8")


def remove_unfinished(folder: str | Path) -> None:
    """Remove what saves that were cut short have left; nobody else may be writing."""
    for path in _entries(folder):
        if re.fullmatch(UNFINISHED, path.name):
            logging.warning("%s: left by a save that was cut short; removed", path)
            shutil.rmtree(path, ignore_errors=True)


def check_name(folder: str | Path) -> None:
    """Refuse a folder whose checkpoints TensorFlow cannot read.

    It takes the path for a pattern there, in which `[`, `]` and the backslash have a meaning and
    cannot be escaped. `?` and `*` match themselves too.

    Raises: WeightsError.
    """
    path = os.fspath(folder)
    found = next((c for c in path if c in "[]\\" or "\ud800" <= c <= "\udfff"), None)
    if found is not None:
        what = found if found in "[]\\" else "a byte that is not UTF-8"
        raise WeightsError(
            f"{path!a}: holds {what}, and TensorFlow cannot read a checkpoint in a folder of "
            "such a name; use another name"
        )


def checkpoint_paths(folder: str | Path) -> list[str]:
    """Return the paths of a folder's checkpoints that have our names, the latest first."""
    found = [re.fullmatch(CHECKPOINT_FILE, path.name) for path in _entries(folder)]
    steps = sorted({int(match[1]) for match in found if match}, reverse=True)
    return [f"{Path(folder)}/{PREFIX}-{step}" for step in steps]


def holds_checkpoint(folder: str | Path) -> bool:
    """Return whether there is any checkpoint in a folder, whole or not."""
    return bool(_candidates(folder))


def read_latest(folder: str | Path, read: Callable[[str], T]) -> T | None:
    """Read the latest checkpoint that can be used; later ones are logged.

    Args:
        folder: looked at again after each failure: a run may be saving and removing meanwhile.
        read: called with a path. Raises: WeightsError if that checkpoint cannot be used.
    Returns: what `read` returns; None if there is no checkpoint.
    Raises: WeightsError if there are some and none can be used.
    """
    failed, tried = None, set()
    while path := next((p for p in _candidates(folder) if p not in tried), None):
        if failed is not None:
            logging.warning("%s; trying %s, the one before it", failed, path)
        try:
            return read(path)
        except WeightsError as error:
            failed = error
            tried.add(path)
    if failed is not None:
        raise WeightsError(f"{failed}; no other checkpoint in {folder} is whole")
    return None


def open_checkpoint(path: str):
    """Return TensorFlow's reader of a checkpoint. Raises: WeightsError if there is none to read."""
    try:
        return tf.train.load_checkpoint(path)
    except (*UNREADABLE, ValueError) as error:
        check_name(os.path.dirname(path))
        raise WeightsError(f"{path}: not a whole checkpoint ({reason(error)})") from error


def read_tensors(reader, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and value of every tensor, so that damage shows before anything is used.

    A file that was cut short or has a byte wrong does not have the checksums that it says.

    Raises: WeightsError; also where a checkpoint of ours holds a number that is not finite.
    """
    for name in reader.get_variable_to_shape_map():
        try:
            value = reader.get_tensor(name)
        except (*UNREADABLE, ValueError) as error:
            raise WeightsError(f"{path}: not a whole checkpoint ({reason(error)})") from error
        is_number = name.endswith(SUFFIX) and name != MAY_BE_INFINITE and value.dtype.kind == "f"
        if is_number and not np.isfinite(value).all():
            raise WeightsError(f"{path}: {name.removesuffix(SUFFIX)} is not finite")
        yield name, value


def reason(error: Exception) -> str:
    """Return the first line of what TensorFlow says, without the names of its operations."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", line)


def _candidates(folder: str | Path) -> list[str]:
    """Return the checkpoints that have our names, then those that TensorFlow's list names.

    The list alone does not do: a save that was cut short leaves a checkpoint that is not in it.
    """
    paths = checkpoint_paths(folder)
    return paths + [path for path in _listed(Path(folder)) if path not in paths]


def _listed(folder: Path) -> Iterator[str]:
    """Yield the checkpoints that TensorFlow's list names and that are there, the latest first."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except (ValueError, OSError, tf.errors.OpError) as error:  # ValueError: bad UTF-8 too
        logging.warning("%s/%s: not a list of checkpoints (%s); ignored", folder, LIST, error)
        state = None
    names = [] if state is None else [*state.all_model_checkpoint_paths][::-1]
    for name in dict.fromkeys([state.model_checkpoint_path, *names] if state else []):
        # Wherever the list says: the folder may be a copy, which has its own.
        path = f"{folder}/{os.path.basename(name)}"
        if any(os.path.exists(path + end) for end in (".index", "")):
            yield path


def _entries(folder: str | Path) -> list[Path]:
    return list(Path(folder).iterdir()) if Path(folder).is_dir() else []


def _remove(path: str) -> None:
    """Remove the files of a checkpoint."""
    name = os.path.basename(path)
    for part in _entries(os.path.dirname(path)):
        if part.name.startswith(f"{name}."):
            part.unlink(missing_ok=True)
