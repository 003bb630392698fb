"""Checkpoints of training: names of their keys, writing, reading, validation, pruning, the list.

A checkpoint has TensorFlow's format, an index and data files, and a JSON file that is renamed into
place after them. They are named `model.ckpt-<step>`; the file `checkpoint` lists them for
TensorFlow. `Checkpoint` reads both ours and the TensorFlow 1 reference's. `CheckpointContent` and
`CheckpointFolder` write ours. The keys of the tensors, without `SUFFIX`:

    weights/<name>, <slot>/<name>   by stored name, with `.S` instead of `/`
    state/<i>                       LSTM states (rows, width), in the order of `BiLM.flatten_state`
    position/<direction>_<part>     where the readers are in the text

`model.ckpt-<step>.json` contains a `RunRecord`. In checkpoints of version 0.1.0 its first values
are tensors, and the others are in separate files of the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.data.stream import Position
from bilm.errors import NotFiniteError, WeightsError
from bilm.storage import names
from bilm.support.files import expanded, replacing
from bilm.support.model_files import CHECKPOINT, CHECKPOINT_LIST

PREFIX, LIST = CHECKPOINT, CHECKPOINT_LIST
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
WEIGHTS, STATE, POSITION = "weights/", "state/", "position/"
AVERAGED = "trained/"  # in checkpoints of version 0.1.0 with an average of the weights
POSITION_PARTS = ("reader", "buffer", "rows")
# Values of the record that version 0.1.0 stored as tensors.
TENSORS = ("step", "seed", "n_steps", "batch", "best", "shards", "vocabulary")

UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError, ValueError)  # what TensorFlow raises
CHECKPOINT_FILE = re.escape(PREFIX) + r"-(\d+)\.(index|data-\d+-of-\d+|json)"
UNFINISHED = re.escape(PREFIX) + r"-\d+_temp"  # the folder that a save writes to first
# Hides "Sharding callback duration", which TensorFlow logs at each save.
logging.get_absl_logger().addFilter(lambda record: "functional_saver" not in record.pathname)


def every(name: str) -> bool:
    """Return True: selects all weights."""
    return True


def none(name: str) -> bool:
    """Return False: selects no weight."""
    return False


@dataclass(frozen=True)
class RunRecord:
    """The content of a checkpoint's JSON file.

    Args:
        step, n_steps: steps that were done; steps that were requested.
        seed: the run's seed.
        batch: rows of the global batch; rows per replica as requested at first.
        best: lowest held-out perplexity so far; None before the first.
        shards: name and size of each file of the text.
        vocabulary: `Vocabulary.digest` of the words.
        options: the options of the run, with the requested `batch_size`.
        auto: length and precision that `--options auto` chose; None without.
        finetuning: the source of a fine-tuning run and its perplexity at the start; None without.
    """

    step: int
    n_steps: int
    seed: int
    batch: tuple[int, int]
    best: float | None
    shards: Sequence[str]
    vocabulary: str
    options: Mapping[str, Any]
    auto: Mapping[str, Any] | None = None
    finetuning: Mapping[str, Any] | None = None


class Reader:
    """The tensors of a checkpoint in TensorFlow's format, or of a SavedModel's variables, by key.

    Args:
        path: path of the files, without their endings.
    Raises: WeightsError if the index is damaged.
    """

    def __init__(self, path: str):
        self.path = path
        try:
            self._reader = tf.train.load_checkpoint(path)
        except UNREADABLE as error:
            check_name(os.path.dirname(path))
            raise WeightsError(f"{path}: not a whole checkpoint ({reason(error)})") from error
        shapes = self._reader.get_variable_to_shape_map()
        dtypes = self._reader.get_variable_to_dtype_map()
        self.shapes = {key: tuple(shape) for key, shape in shapes.items()}
        self.dtypes = {key: np.dtype(dtype.as_numpy_dtype) for key, dtype in dtypes.items()}

    def read(self, key: str) -> Any:
        """Return a tensor, or bytes. Raises: WeightsError if it is damaged."""
        try:
            return self._reader.get_tensor(key)
        except UNREADABLE as error:
            raise WeightsError(f"{self.path}: not a whole checkpoint ({reason(error)})") from error


class Checkpoint:
    """An open checkpoint of training.

    Opening it reads the index and the JSON file. Weights and states are read when they are
    requested, with their checksums.

    Args:
        path: path of the checkpoint, without the endings of its files.
    Attributes:
        files: the index, the data files and the JSON file.
        is_reference: whether the TensorFlow 1 reference wrote it, without steps and states.
        shapes, dtypes: shape and dtype of each weight, by stored name.
        n_words: words of the softmax.
        step, n_steps, seed, shards, vocabulary: see `RunRecord`; None or empty if unknown.
        n_rows, batch_size: rows of the global batch; rows per replica as requested first.
        best: lowest held-out perplexity so far; infinite if nothing was measured.
        position: position of the readers in the text; None if unknown.
        skipped: for each later checkpoint that cannot be used, the reason.
    Raises: WeightsError if it cannot be read, is incomplete or does not belong to a biLM.
    """

    def __init__(self, path: str | Path):
        self.path = os.fspath(path)
        self._reader = Reader(self.path)
        self._shapes = self._reader.shapes
        self.files = _files(self.path)
        self.is_reference = not any(key.startswith(WEIGHTS) for key in self._shapes)
        variables = {k: names.OURS.variable_of(k) or names.TF1.variable_of(k) for k in self._shapes}
        self._keys = {name: key for key, name in variables.items() if name is not None}
        self._kept: dict[str, np.ndarray] = {}
        self.skipped: list[str] = []
        self.shapes = {name: self._shapes[key] for name, key in self._keys.items()}
        self.dtypes = {name: self._reader.dtypes[key] for name, key in self._keys.items()}
        bias = self.shapes.get(f"{names.SOFTMAX}b", ())
        if len(bias) != 1:
            expected = "expected the checkpoint of a biLM's training"
            raise WeightsError(f"{self.path}: softmax/b is missing; {expected}")
        self.n_words = bias[0]
        record = read_record(self.path)
        if not record:
            stored = (k for k in TENSORS if k + SUFFIX in self._shapes)
            record = {k: self._tensor(k + SUFFIX) for k in stored}
        if not (record or self.is_reference):  # a save was interrupted
            raise WeightsError(f"{self.path}: not a whole checkpoint (its JSON file is missing)")
        n_rows = next(iter(self._shapes.get(f"{STATE}0{SUFFIX}", ())), 0)
        try:
            self.step, self.seed, self.n_steps = (
                None if record.get(k) is None else int(record[k]) for k in TENSORS[:3]
            )
            self.n_rows, self.batch_size = map(int, record.get("batch", (n_rows, n_rows)))
            best = record.get("best")
            self.best = math.inf if best is None else float(best)
            self.shards = [os.fsdecode(name) for name in record.get("shards", [])]
            self.vocabulary = os.fsdecode(record.get("vocabulary", b""))
        except (TypeError, ValueError) as error:
            raise WeightsError(f"{self.path}: not a checkpoint of training ({error!r})") from error
        places = [key for key in self._shapes if key.startswith(POSITION)]
        position = {k.removeprefix(POSITION).removesuffix(SUFFIX): self._tensor(k) for k in places}
        has_place = any(array.size for array in position.values())
        self.position: Position | None = position if has_place else None

    @classmethod
    def open(cls, path: str | Path, only: Callable[[str], bool] = none) -> Checkpoint:
        """Open a checkpoint; read the selected weights now and keep them for `read`.

        Raises: WeightsError, also if one of these weights is damaged.
        """
        found = cls(expanded(path))
        found._kept = {name: found.read(name) for name in found.shapes if only(name)}
        return found

    @property
    def state(self) -> list[np.ndarray]:
        """LSTM states (rows, width), in the order of `BiLM.flatten_state`.

        Raises: WeightsError if it contains none, like checkpoints of the TensorFlow 1 reference.
        """
        n_states = sum(key.startswith(STATE) for key in self._shapes)
        if not n_states:
            raise WeightsError(
                f"{self.path}: contains no LSTM states; only checkpoints of bilm's training do"
            )
        return [self._tensor(f"{STATE}{i}{SUFFIX}") for i in range(n_states)]

    def read(self, name: str) -> np.ndarray:
        """Return a weight by its stored name. Raises: WeightsError if it is missing or damaged."""
        if name in self._kept:
            return self._kept.pop(name)
        if name not in self._keys:
            raise WeightsError(f"{self.path}: {name} is missing")
        return self._tensor(self._keys[name])

    def check_all(self) -> None:
        """Read every tensor once. Raises: WeightsError if one is damaged or not finite."""
        if self.is_reference:
            raise WeightsError(f"{self.path}: expected a checkpoint of bilm's training")
        if any(key.startswith(AVERAGED) for key in self._shapes):
            raise WeightsError(
                f"{self.path}: its weights are an average; only version 0.1.0 trains them further"
            )
        for key in self._shapes:
            self._tensor(key)

    def _tensor(self, key: str) -> np.ndarray:
        value = self._reader.read(key)
        is_number = self._reader.dtypes[key].kind not in "iuO" and key.endswith(SUFFIX)
        if is_number and key != f"best{SUFFIX}" and not np.isfinite(value).all():
            raise WeightsError(f"{self.path}: {key.removesuffix(SUFFIX)} is not finite")
        return value


def latest_checkpoint(
    folder: str | Path, only: Callable[[str], bool] = every, whole: bool = False
) -> Checkpoint | None:
    """Open the latest checkpoint that can be used; log those that are damaged.

    Args:
        folder: searched again after each failure: a run may be saving and removing meanwhile.
        only: selects weights that are read now and kept: a damaged one leads to the checkpoint
            before it.
        whole: whether to check every tensor, including slots and states, and keep none of them in
            memory; used to resume a run.
    Returns: None if the folder contains no checkpoint.
    Raises: WeightsError if it contains some and none can be used.
    """
    folder = expanded(folder)
    failed: dict[str, str] = {}
    while path := next((p for p in checkpoint_paths(folder) if p not in failed), None):
        if failed:
            logging.warning("%s; trying %s, the one before it", [*failed.values()][-1], path)
        try:
            found = Checkpoint.open(path, none if whole else only)
            if whole:
                found.check_all()
            found.skipped = [*failed.values()]
            return found
        except WeightsError as error:
            failed[path] = str(error)
    if failed:
        raise WeightsError(f"{[*failed.values()][-1]}; no other checkpoint in {folder} is whole")
    return None


def read_record(path: str) -> dict[str, Any]:
    """Return the content of a checkpoint's JSON file; empty if there is none.

    Raises: WeightsError if it is damaged.
    """
    try:
        with open(f"{path}.json", "rb") as file:
            record = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path}.json: cannot be read: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("options"), dict):
        raise WeightsError(f"{path}.json: expected the record of a checkpoint")
    return record


# --- files of a folder ---


def checkpoint_paths(folder: str | Path) -> list[str]:
    """Return the paths of a folder's checkpoints that have our names, the latest first."""
    found = [re.fullmatch(CHECKPOINT_FILE, path.name) for path in _entries(folder)]
    steps = sorted({int(match[1]) for match in found if match}, reverse=True)
    return [f"{Path(folder)}/{PREFIX}-{step}" for step in steps]


def holds_checkpoint(folder: str | Path) -> bool:
    """Return whether a folder contains any checkpoint, whole or not."""
    return bool(checkpoint_paths(folder))


def remove_unfinished(folder: str | Path) -> None:
    """Remove what interrupted saves have left; no other process may be writing."""
    for path in _entries(folder):
        if re.fullmatch(UNFINISHED, path.name):
            logging.warning("%s: left by an interrupted save; removed", path)
            shutil.rmtree(path, ignore_errors=True)


def check_name(folder: str | Path) -> None:
    """Refuse a folder whose checkpoints TensorFlow cannot read.

    TensorFlow treats the path as a pattern. `?` and `*` also match themselves.

    Raises: WeightsError.
    """
    path = os.fspath(folder)
    if re.search("[][\\\\\ud800-\udfff]", path):
        raise WeightsError(
            f"{path!a}: contains [, ], a backslash or bytes that are not UTF-8, and TensorFlow "
            "cannot read a checkpoint in a folder of such a name; use another name"
        )


def reason(error: Exception) -> str:
    """Return the first line of a TensorFlow error, without the names of its operations."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", line)


def _files(path: str) -> tuple[Path, ...]:
    name = f"{os.path.basename(path)}."
    parts = [p for p in _entries(os.path.dirname(path) or ".") if p.name.startswith(name)]
    ours = [p for p in parts if re.fullmatch(r"index|data-\d+-of-\d+|json", p.name[len(name) :])]
    return tuple(sorted(ours))


def _entries(folder: str | Path) -> list[Path]:
    return list(Path(folder).iterdir()) if Path(folder).is_dir() else []


def _remove(path: str) -> None:
    """Remove the files of a checkpoint."""
    for part in _files(path):
        part.unlink(missing_ok=True)


# --- writing ---


class CheckpointContent:
    """The tensors of a run's checkpoints, as TensorFlow writes and restores them.

    Args:
        weights: variables of the model, by stored name.
        slots: the optimizer's variables, by slot and stored name.
        state: LSTM states of all rows, in the order of `BiLM.flatten_state`.
        directions: directions of the readers whose positions are saved.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        slots: Mapping[str, Mapping[str, Any]],
        state: Sequence[np.ndarray],
        directions: Sequence[str],
    ):
        self._state = [tf.Variable(array) for array in state]
        self._model = {WEIGHTS[:-1]: dict(weights), STATE[:-1]: self._state, **slots}
        with tf.device("CPU:0"):
            self._position = {
                f"{direction}_{part}": tf.Variable(
                    tf.zeros((0,), tf.int64), shape=tf.TensorShape(None)
                )
                for direction in directions
                for part in POSITION_PARTS
            }
        self.variables = tf.train.Checkpoint(**self._model, position=self._position)

    def set_position(self, position: Position | None) -> None:
        """Set the position of the readers; None keeps it."""
        for name, array in (position or {}).items():
            self._position[name].assign(array)

    def set_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the LSTM states of all rows."""
        for variable, array in zip(self._state, arrays, strict=True):
            variable.assign(array)

    def restore(self, checkpoint: Checkpoint) -> list[np.ndarray]:
        """Set weights, slots and position from a checkpoint; return the LSTM states of all rows.

        Raises: WeightsError if it is another model's.
        """
        path = checkpoint.path
        try:
            status = tf.train.Checkpoint(**self._model).read(path)
            status.assert_existing_objects_matched().expect_partial()
        except (*UNREADABLE, AssertionError) as error:
            raise WeightsError(
                f"{path}: not a checkpoint of this model ({reason(error)})"
            ) from error
        self.set_position(checkpoint.position)
        return [variable.numpy() for variable in self._state]

    def check_finite(self, step: int) -> None:
        """Check one variable at a time. Raises: NotFiniteError if a value to save is not finite."""
        for name, variable in self._each():
            try:
                tf.debugging.check_numerics(variable, "")
            except tf.errors.InvalidArgumentError:
                raise NotFiniteError(
                    f"step {step}: {name} is not finite, so nothing was saved; the last "
                    "checkpoint remains; reduce learning_rate"
                ) from None

    def digests(self) -> dict[str, str]:
        """Return the first digits of the SHA-256 of weights, LSTM states and each slot."""
        found = {group: hashlib.sha256() for group in self._model}
        for name, variable in self._each():
            found[name.partition("/")[0]].update(np.ascontiguousarray(variable.numpy()).tobytes())
        return {group: digest.hexdigest()[:16] for group, digest in found.items()}

    def _each(self) -> Iterator[tuple[str, Any]]:
        for group, variables in self._model.items():
            named = variables.items() if isinstance(variables, dict) else enumerate(variables)
            yield from ((f"{group}/{name}", variable) for name, variable in named)


class CheckpointFolder:
    """Writes checkpoints to a folder and keeps the latest ones.

    TensorFlow's CheckpointManager would treat the folder's name as a pattern: in `run?` it would
    remove files of `run1`.

    Args:
        folder: an existing folder.
        keep: number of checkpoints to keep.
    """

    def __init__(self, folder: str | Path, keep: int):
        self.folder, self.keep = Path(folder), keep

    def path(self, step: int) -> str:
        """Return the path of a step's checkpoint, without the endings of its files."""
        return f"{self.folder}/{PREFIX}-{step}"

    def write(self, content: CheckpointContent, record: RunRecord) -> str:
        """Write a checkpoint, whole or not at all; list it and remove the oldest ones.

        Returns: its path.
        Raises: WeightsError if it cannot be written; earlier checkpoints are not touched then.
        """
        path = self.path(record.step)
        new = Path(f"{path}_temp")
        try:
            # TensorFlow would create the folder, without the other files of a run.
            os.stat(self.folder)
            content.variables.write(os.fspath(new / os.path.basename(path)))
            with replacing(new / f"{os.path.basename(path)}.json") as temporary:
                temporary.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")
            for part in sorted(new.iterdir()):  # the JSON file is the last
                os.replace(part, self.folder / part.name)
            # Checkpoints of later steps are removed: they were damaged, so training resumed from an
            # earlier one.
            paths = checkpoint_paths(self.folder)
            kept = paths[paths.index(path) :][: self.keep]
            listed = [os.path.basename(path) for path in kept]
            state = tf.compat.v1.train.generate_checkpoint_state_proto(
                str(self.folder), listed[0], listed[::-1]
            )
            with replacing(self.folder / LIST) as temporary:
                temporary.write_text(str(state), encoding="utf-8")
        except (tf.errors.OpError, OSError) as error:
            last = next(iter(checkpoint_paths(self.folder)), "none")
            raise WeightsError(
                f"{path}: cannot be saved: {reason(error)}; the last checkpoint: {last}"
            ) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for old in paths:
            if old not in kept:
                _remove(old)
        return path
