"""What a run leaves on the disk and goes on from: checkpoints that are whole or not used."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from bilm import weights
from bilm.checkpoint import (
    OPTIONS,
    PREFIX,
    SUFFIX,
    UNREADABLE,
    VOCABULARY,
    checkpoint_paths,
    open_checkpoint,
)
from bilm.errors import WeightsError
from bilm.files import replacing
from bilm.stream import Position
from bilm.trainer import Trainer

BEST = "best"  # a folder in the run's, which holds the checkpoint that was best on held-out text
PARTS = ("reader", "buffer", "rows")  # of a position, for each direction


class Saved(NamedTuple):
    """What a whole checkpoint says of its run, weights and states apart.

    Fields:
        path: of the checkpoint.
        step, seed: how many steps were done, and by what they are keyed.
        n_rows: of the global batch.
        batch_size: rows a replica that the run was first asked for.
        best: the best mean perplexity held out so far; infinite where nothing was measured.
        position: of the readers, None in checkpoints that have none.
        shards: names and sizes of the text's files, in order.
    """

    path: str
    step: int
    seed: int
    n_rows: int
    batch_size: int
    best: float
    position: Position | None
    shards: list[str]


class RunCheckpoints:
    """Saves and restores a `Trainer`: weights, accumulators, LSTM states, and where the run is.

    Args:
        trainer: what to save.
        save_dir: the run's folder.
        shards: the text's files, as `bilm.stream.describe_shards` gives them.
        batch_size: rows a replica that the run was first asked for.
        max_to_keep: how many checkpoints stay; the best one stays beside them, in `best`.
    """

    def __init__(
        self,
        trainer: Trainer,
        save_dir: str | Path,
        shards: Sequence[str] = (),
        batch_size: int | None = None,
        max_to_keep: int = 3,
    ):
        self.trainer, self.best, self._saved_step = trainer, math.inf, None
        self.max_to_keep = max_to_keep
        stored = weights.stored_variables(trainer.model)
        self._state = [tf.Variable(array) for array in trainer.global_state()]
        self._model = {
            "weights": {name: variable.value for name, variable in stored.items()},
            "adagrad": dict(zip(stored, trainer.optimizer.accumulators, strict=True)),
            "state": self._state,
        }
        self.batch_size = batch_size or trainer.options.batch_size
        names = [os.fsencode(name) for name in shards]
        with tf.device("CPU:0"):
            self._step = tf.Variable(0, dtype=tf.int64)
            self._best = tf.Variable(math.inf, dtype=tf.float64)
            self._position = {
                f"{direction}_{part}": tf.Variable(
                    tf.zeros((0,), tf.int64), shape=tf.TensorShape(None)
                )
                for direction in trainer.model.directions
                for part in PARTS
            }
            checkpoint = tf.train.Checkpoint(
                **self._model,
                step=self._step,
                seed=tf.Variable(trainer.seed, dtype=tf.int64),
                batch=tf.Variable([self._state[0].shape[0], self.batch_size], dtype=tf.int64),
                best=self._best,
                position=self._position,
                shards=tf.Variable(tf.constant(names, tf.string, (len(names),))),
            )
        self.save_dir = Path(save_dir)
        self.manager = tf.train.CheckpointManager(
            checkpoint, str(save_dir), max_to_keep, checkpoint_name=PREFIX
        )
        self.best_manager = tf.train.CheckpointManager(
            checkpoint, str(self.save_dir / BEST), 1, checkpoint_name=PREFIX
        )

    def save(self, step: int, position: Position | None = None) -> str:
        """Save the trainer after `step` steps; give the checkpoint's path.

        Args:
            position: of the readers after the window that was trained on last.
        Raises: WeightsError if it cannot be written; those before it are not touched then.
        """
        if step == self._saved_step:
            return f"{self.save_dir}/{PREFIX}-{step}"
        self._step.assign(step)
        self._best.assign(self.best)
        for name, array in (position or {}).items():
            self._position[name].assign(array)
        for variable, array in zip(self._state, self.trainer.global_state(), strict=True):
            variable.assign(array)
        path = self._write(self.manager, step)
        self._saved_step = step
        return path

    def save_if_best(self, step: int, perplexity: float) -> bool:
        """Save what `save` has just saved once more, in `best`, if nothing was better so far."""
        if not perplexity < self.best:
            return False
        self.best = perplexity
        self._best.assign(perplexity)
        self._write(self.best_manager, step)
        for name in (OPTIONS, VOCABULARY):  # so that it can be measured and exported on its own
            if (self.save_dir / name).exists():
                with replacing(self.save_dir / BEST / name) as temporary:
                    shutil.copyfile(self.save_dir / name, temporary)
        return True

    def _write(self, manager: tf.train.CheckpointManager, step: int) -> str:
        path = f"{manager.directory}/{PREFIX}-{step}"
        try:
            written = manager.save(checkpoint_number=step)
            self._remove_old(manager, step)
            return written
        except (tf.errors.OpError, OSError) as error:
            shutil.rmtree(f"{path}_temp", ignore_errors=True)
            _remove(path)
            last = manager.latest_checkpoint or "none"
            reason = _reason(error)
            raise WeightsError(
                f"{path}: cannot be saved: {reason}; the last whole one: {last}"
            ) from error

    def _remove_old(self, manager: tf.train.CheckpointManager, step: int) -> None:
        """Remove what the manager does not know of: what saves that were cut short have left."""
        paths = checkpoint_paths(manager.directory)
        latest = paths.index(f"{manager.directory}/{PREFIX}-{step}")  # later ones were not whole
        keep = 1 if manager is self.best_manager else self.max_to_keep
        for path in paths[:latest] + paths[latest + keep :]:
            _remove(path)

    def restore(self, saved: Saved) -> None:
        """Bring weights, accumulators and states back, and the best score.

        Raises: WeightsError if the checkpoint is not this model's or has other rows.
        """
        n_rows = self._state[0].shape[0]
        if saved.n_rows != n_rows:
            raise WeightsError(
                f"{saved.path}: saved with {saved.n_rows} rows, but this run has {n_rows}, which "
                "is batch_size times replicas"
            )
        if saved.seed != self.trainer.seed:  # the order of the text would be another
            raise WeightsError(
                f"{saved.path}: saved with seed {saved.seed}, not {self.trainer.seed}"
            )
        try:
            status = tf.train.Checkpoint(**self._model).restore(saved.path)
            status.assert_existing_objects_matched()
        except (*UNREADABLE, ValueError, AssertionError) as error:
            raise WeightsError(
                f"{saved.path}: not a checkpoint of this model ({_reason(error)})"
            ) from error
        self.trainer.set_state([variable.numpy() for variable in self._state])
        self.best = min([saved.best, *_best_scores(self.save_dir / BEST)])
        self._saved_step = saved.step


def find_saved(save_dir: str | Path) -> Saved | None:
    """Find a run's latest whole checkpoint, each tensor of which can be read.

    Those after it, which a save that was cut short or a bad disk has left, are told on the log.

    Returns: what it says; None if there is no checkpoint.
    Raises: WeightsError if there are some and none is whole.
    """
    failed = None
    for path in checkpoint_paths(save_dir):
        if failed is not None:
            logging.warning("%s; trying %s, the one before it", failed, path)
        try:
            return _read_saved(path)
        except WeightsError as error:
            failed = error
    if failed is not None:
        raise WeightsError(f"{failed}; no other checkpoint in {save_dir} is whole")
    return None


def holds_checkpoint(save_dir: str | Path) -> bool:
    """Tell whether there is any checkpoint in a folder, whole or not."""
    return bool(checkpoint_paths(save_dir))


def _remove(path: str) -> None:
    """Remove the files of a checkpoint."""
    for part in Path(path).parent.glob(f"{Path(path).name}.*"):
        part.unlink()


def _read_saved(path: str) -> Saved:
    reader = open_checkpoint(path)
    try:
        # All that is there is read, though most of it is dropped: a file that was cut short, or
        # has a byte wrong, shows itself here, before anything is taken over.
        small = {}
        for name in reader.get_variable_to_shape_map():
            value = reader.get_tensor(name)
            if not name.startswith(("weights/", "adagrad/", "_CHECKPOINTABLE")):
                small[name.removesuffix(SUFFIX)] = value
    except (*UNREADABLE, ValueError) as error:
        raise WeightsError(f"{path}: not a whole checkpoint ({_reason(error)})") from error
    if "step" not in small or "state/0" not in small:
        raise WeightsError(f"{path}: no step and no states; expected a checkpoint of training")
    n_rows, batch_size = small.get("batch", [len(small["state/0"])] * 2)
    position = {k.removeprefix("position/"): v for k, v in small.items() if "position/" in k}
    if not any(array.size for array in position.values()):
        position = None
    shards = [os.fsdecode(name) for name in small.get("shards", [])]
    step, seed, best = int(small["step"]), int(small["seed"]), float(small.get("best", math.inf))
    return Saved(path, step, seed, int(n_rows), int(batch_size), best, position, shards)


def _best_scores(folder: Path) -> Iterator[float]:
    """Give what the best checkpoint so far has recorded: it is saved after its evaluation."""
    for path in checkpoint_paths(folder)[:1]:
        with suppress(WeightsError, *UNREADABLE):
            yield float(open_checkpoint(path).get_tensor(f"best{SUFFIX}"))


def _reason(error: Exception) -> str:
    """Give the first line of what TensorFlow says, without the names of its operations."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", line)
