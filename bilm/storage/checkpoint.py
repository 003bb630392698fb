"""Checkpoints of training: names of their keys, writing, reading, validation, pruning, the list.

A checkpoint has TensorFlow's format, an index and data files, and a JSON file, a `RunRecord`, that
is renamed into place after them. They are named `model.ckpt-<step>`; the file `checkpoint` lists
them for TensorFlow. The keys of the tensors, without `SUFFIX`:

    weights/<name>, <slot>/<name>   by stored name, with `.S` instead of `/`
    state/<i>                       LSTM states (rows, width), in the order of `layers.types.State`
    position/<direction>_<part>     where the readers are in the text

0.2.0 is the first version whose checkpoints stay readable. `Checkpoint` also reads the weights in
checkpoints of the TensorFlow 1 reference, which have other keys and no JSON file.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.data.stream import Position
from bilm.errors import NotFiniteError, WeightsError
from bilm.storage.formats.rows import StoredRow, tf1_rows, variables_of
from bilm.storage.run_record import RunRecord
from bilm.storage.stored_tensors import LazyTensor, Tensors
from bilm.support.files import expanded, replacing, scratch, unusable
from bilm.support.model_files import CHECKPOINT, CHECKPOINT_ENDING, CHECKPOINT_FILE, CHECKPOINT_LIST
from bilm.tensors import ROWS as TENSOR_ROWS

STATE, POSITION, WEIGHTS = "state/", "position/", "weights/"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"  # of the keys of variables
ROWS = [
    StoredRow(row.name, (WEIGHTS + row.name.replace("/", ".S") + SUFFIX,)) for row in TENSOR_ROWS
]
# The cells of the reference have no level of layers in one-layer models, and no `RNN_0` in
# forward-only models.
for direction in ("RNN_{k}/", ""):
    for layer in ("multi_rnn_cell/cell_{i}/", ""):
        ROWS += tf1_rows("lm/", f"{direction}rnn/{layer}lstm_cell")
UNREADABLE = (tf.errors.OpError, RuntimeError, IndexError, ValueError)  # what TensorFlow raises
# Hides "Sharding callback duration", which TensorFlow logs at each save.
logging.get_absl_logger().addFilter(lambda record: "functional_saver" not in record.pathname)


# --- any checkpoint of TensorFlow ---


def tensors_in(path: str) -> dict[str, LazyTensor]:
    """Return the tensors of a checkpoint or SavedModel of TensorFlow by key, given its path without
    the endings. Raises: WeightsError if the index is damaged, or a value when it is read."""
    with _explaining(path):
        reader = tf.train.load_checkpoint(path)

    def read(key: str) -> Any:
        with _explaining(path):
            return reader.get_tensor(key)

    dtypes = reader.get_variable_to_dtype_map()
    tensors = {}
    for key, shape in reader.get_variable_to_shape_map().items():
        dtype = np.dtype(dtypes[key].as_numpy_dtype)
        tensors[key] = LazyTensor(tuple(shape), dtype, partial(read, key))
    return tensors


@contextmanager
def _explaining(path: str) -> Iterator[None]:
    """Turn errors of TensorFlow in the block into a WeightsError that names the checkpoint."""
    try:
        yield
    except UNREADABLE as error:
        check_name(os.path.dirname(path))
        problem = f"not a whole checkpoint ({reason(error)})"
        files = f"{path}.index", f"{path}.data-00000-of-00001"
        raise WeightsError(unusable(path, problem, *files)) from error


def check_name(folder: str | Path) -> None:
    """Raise WeightsError for a folder whose checkpoints TensorFlow cannot read, because it treats
    the path as a pattern. `?` and `*` also match themselves."""
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


# --- checkpoints of training ---


class Checkpoint:
    """An open checkpoint of training. Weights and states are read when they are requested, with
    their checksums.

    `path`: path of the checkpoint, without the endings of its files.

    Attributes:
        files: the index, the data files and the JSON file.
        is_reference: whether the TensorFlow 1 reference wrote it, without record and states.
        tensors: the weights, including the softmax, by stored name.
        n_words: words of the softmax.
        position: position of the readers in the text; None if unknown.
        skipped: for each later checkpoint that cannot be used, the reason.
    Raises: WeightsError if it cannot be read, is incomplete or does not belong to a biLM.
    """

    def __init__(self, path: str | Path):
        self.path = os.fspath(path)
        self.skipped: list[str] = []
        self._by_key = tensors_in(self.path)
        self.files = _files(self.path)
        self.tensors = Tensors(self.path, self.files, variables_of(self._by_key, ROWS, self.path))
        self.n_words = self.tensors.axis_lengths("softmax/b")["words"]

        # The record and the position, which the reference does not store.
        self._record = RunRecord.read(self.path)
        self.is_reference = self._record is None
        if self.is_reference and self._keys_of(WEIGHTS):  # a save was interrupted
            raise WeightsError(f"{self.path}: not a whole checkpoint (its JSON file is missing)")
        position = {}
        for key in self._keys_of(POSITION):
            name = key.removeprefix(POSITION).removesuffix(SUFFIX)
            position[name] = self._by_key[key].read()
        is_known = any(array.size for array in position.values())
        self.position: Position | None = position if is_known else None

    @property
    def record(self) -> RunRecord:
        """The content of the JSON file. Raises: WeightsError for a checkpoint of the reference."""
        if self._record is None:
            raise WeightsError(f"{self.path}: expected a checkpoint of bilm's training")
        return self._record

    @property
    def state(self) -> list[np.ndarray]:
        """LSTM states (rows, width), in the order of `layers.types.State`. Raises: WeightsError for
        a checkpoint of the reference, which contains none."""
        _ = self.record
        n_states = len(self._keys_of(STATE))
        return [self._by_key[f"{STATE}{i}{SUFFIX}"].read() for i in range(n_states)]

    def check(self, only: Callable[[str], bool] | None = None) -> None:
        """Read the weights whose names `only` selects, by default every tensor. Raises:
        WeightsError if one is damaged or not finite, or by default for the reference."""
        if only is None:
            _ = self.record
        tensors = self._by_key if only is None else self.tensors.only(only)
        for name, tensor in tensors.items():
            is_float = tensor.dtype.kind not in "iuO"
            value = tensor.read()
            if is_float and not np.isfinite(value).all():
                raise WeightsError(f"{self.path}: {name.removesuffix(SUFFIX)} is not finite")

    def _keys_of(self, group: str) -> list[str]:
        return [key for key in self._by_key if key.startswith(group)]


def latest_checkpoint(
    folder: str | Path,
    only: Callable[[str], bool] | None = lambda name: True,
) -> Checkpoint | None:
    """Open the latest checkpoint that `Checkpoint.check` finds whole; log those that are damaged.
    Return None if the folder contains none. Raises: WeightsError if none of them can be used."""
    folder = expanded(folder)
    failed: dict[str, str] = {}
    last_error = ""
    # Searched again after each failure: a run may be saving and removing meanwhile.
    while path := next((p for p in checkpoint_paths(folder) if p not in failed), None):
        if failed:
            logging.warning("%s; trying %s, the one before it", last_error, path)
        try:
            checkpoint = Checkpoint(path)
            checkpoint.check(only)
        except WeightsError as error:
            failed[path] = last_error = str(error)
        else:
            checkpoint.skipped = list(failed.values())
            return checkpoint
    if failed:
        raise WeightsError(f"{last_error}; no other checkpoint in {folder} is whole")
    return None


# --- files of a folder ---


def checkpoint_paths(folder: str | Path) -> list[str]:
    """Return the paths of a folder's checkpoints that have our names, the latest first."""
    # `Path.glob` hides errors of the disk: a run would find no checkpoint, and start again.
    names = os.listdir(folder) if Path(folder).is_dir() else []
    matches = map(CHECKPOINT_FILE.fullmatch, names)
    steps = {int(match[1]) for match in matches if match}
    return [checkpoint_path(folder, step) for step in sorted(steps, reverse=True)]


def checkpoint_path(folder: str | Path, step: int) -> str:
    """Return the path of a step's checkpoint, without the endings of its files."""
    return f"{Path(folder)}/{CHECKPOINT}-{step}"


def _files(path: str) -> tuple[Path, ...]:
    """Return the files of a checkpoint, given its path without their endings."""
    folder, name = os.path.split(path)
    pattern = re.compile(rf"{re.escape(name)}\.{CHECKPOINT_ENDING}")
    return tuple(sorted(file for file in Path(folder).iterdir() if pattern.fullmatch(file.name)))


# --- writing ---


class CheckpointContent:
    """The tensors of a run's checkpoints, as TensorFlow writes and restores them: variables of the
    model by stored name, those of the optimizer by slot and stored name, LSTM states of all rows in
    the order of `layers.types.State`, and the position of the readers."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        slots: Mapping[str, Mapping[str, Any]],
        state: Sequence[np.ndarray],
    ):
        self._state = [tf.Variable(array) for array in state]
        self._model = {"weights": dict(weights), "state": self._state, **slots}
        self._position: Position = {}

    def set_state(self, arrays: Sequence[np.ndarray], position: Position | None) -> None:
        """Set the LSTM states of all rows, and the position of the readers; None keeps it."""
        for variable, array in zip(self._state, arrays, strict=True):
            variable.assign(array)
        if position is not None:
            self._position = position

    def restore(self, checkpoint: Checkpoint) -> list[np.ndarray]:
        """Set weights, slots and position from a checkpoint; return the LSTM states of all rows.
        Raises: WeightsError if it is another model's."""
        path = checkpoint.path
        try:
            status = tf.train.Checkpoint(**self._model).read(path)
            status.assert_existing_objects_matched().expect_partial()
        except (*UNREADABLE, AssertionError) as error:
            raise WeightsError(
                f"{path}: not a checkpoint of this model ({reason(error)})"
            ) from error
        state = [variable.numpy() for variable in self._state]
        self.set_state(state, checkpoint.position)
        return state

    def check_finite(self, step: int) -> None:
        """Raise NotFiniteError if a value to save is not finite; one variable at a time."""
        for group, name, variable in self._variables():
            try:
                tf.debugging.check_numerics(variable, "")
            except tf.errors.InvalidArgumentError:
                raise NotFiniteError(
                    f"step {step}: {group}/{name} is not finite, so nothing was saved; the last "
                    "checkpoint remains; reduce learning_rate"
                ) from None

    def digests(self) -> dict[str, str]:
        """Return the first digits of the SHA-256 of weights, LSTM states and each slot, by name."""
        hashes = {group: hashlib.sha256() for group in self._model}
        for group, _, variable in self._variables():
            hashes[group].update(np.ascontiguousarray(variable.numpy()).tobytes())
        return {f"SHA-256 of {group}": hash_.hexdigest()[:16] for group, hash_ in hashes.items()}

    def _variables(self) -> Iterator[tuple[str, str, Any]]:
        for group, variables in self._model.items():
            named = variables.items() if isinstance(variables, dict) else enumerate(variables)
            for name, variable in named:
                yield group, str(name), variable

    def write(self, folder: Path, record: RunRecord, keep: int) -> None:
        """Write a checkpoint to an existing folder, list it and remove all but the latest `keep`.
        Raises: WeightsError if it cannot be written; then nothing has changed."""
        path = checkpoint_path(folder, record.step)
        position = {}
        with tf.device("CPU:0"):
            for key, array in self._position.items():
                position[key] = tf.Variable(array, dtype=tf.int64)
        content = tf.train.Checkpoint(**self._model, position=position)
        try:
            # TensorFlow would create the folder of the run, without the other files of a run.
            os.stat(folder)
            with scratch(folder / CHECKPOINT) as unfinished:
                name = os.path.basename(path)
                content.write(os.fspath(unfinished / name))
                with replacing(unfinished / f"{name}.json") as temporary:
                    temporary.write_text(json.dumps(record.to_dict(), indent=1), encoding="utf-8")
                for file in sorted(unfinished.iterdir()):  # the JSON file is the last
                    os.replace(file, folder / file.name)
            # Checkpoints of later steps are removed: they were damaged, so training resumed from an
            # earlier one. TensorFlow's CheckpointManager would treat the folder's name as a
            # pattern: in `run?` it would remove files of `run1`.
            paths = checkpoint_paths(folder)
            kept = paths[paths.index(path) :][:keep]
            listed = [os.path.basename(kept_path) for kept_path in kept]
            state = tf.compat.v1.train.generate_checkpoint_state_proto(
                str(folder), listed[0], listed[::-1]
            )
            with replacing(folder / CHECKPOINT_LIST) as temporary:
                temporary.write_text(str(state), encoding="utf-8")
        except (tf.errors.OpError, OSError) as error:
            last = next(iter(checkpoint_paths(folder)), "none")
            raise WeightsError(
                f"{path}: cannot be saved: {reason(error)}; the last checkpoint: {last}"
            ) from error
        for old in set(paths) - set(kept):
            for file in _files(old):
                file.unlink(missing_ok=True)
