"""What a run saves and continues from: weights, slots, states and place in the text."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import tensorflow as tf

from bilm.data.stream import Position
from bilm.errors import NotFiniteError, OptionsError, WeightsError
from bilm.storage import names as weights
from bilm.storage.checkpoint_folder import UNREADABLE, CheckpointFolder, reason
from bilm.training.run_folder import RunFolder
from bilm.training.saved import Saved
from bilm.training.step import Trainer

PARTS = ("reader", "buffer", "rows")  # of a position, for each direction


@dataclass(frozen=True)
class Saving:
    """When a run saves, whichever comes first, and how many checkpoints it keeps.

    Raises: OptionsError for less than 1 step, 1 checkpoint or 0 minutes.
    """

    steps: int = 1_000
    minutes: float = 15.0
    keep: int = 3

    def __post_init__(self):
        for name in ("steps", "keep"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, Integral) and value >= 1):
                raise OptionsError(f"Saving: {name} is {value!r}, expected an integer from 1")
        if not (isinstance(self.minutes, Real) and self.minutes >= 0):
            raise OptionsError(f"Saving: minutes is {self.minutes!r}, expected a number from 0")


class RunCheckpoints:
    """Saves and restores a `Trainer`: weights, slots, LSTM states, and where the run is.

    Args:
        trainer: what to save.
        folder: the run's.
        n_steps: length of the run.
        shards: the text's files, as `bilm.data.stream.describe_shards` gives them.
        batch_size: rows per replica that were first requested.
        max_to_keep: how many checkpoints stay; the best one stays beside them, in `best`.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        n_steps: int,
        shards: Sequence[str] = (),
        batch_size: int | None = None,
        max_to_keep: int = 3,
    ):
        self.trainer, self.folder = trainer, folder
        self.best, self._saved_step = math.inf, None
        stored = weights.stored_variables(trainer.model)
        self._state = [tf.Variable(array) for array in trainer.global_state()]
        self._model = {
            "weights": {name: variable.value for name, variable in stored.items()},
            "state": self._state,
            **{
                name: dict(zip(stored, slots, strict=True))
                for name, slots in trainer.optimizer.slots.items()
            },
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
            self._checkpoint = tf.train.Checkpoint(
                **self._model,
                step=self._step,
                n_steps=tf.Variable(n_steps, dtype=tf.int64),
                seed=tf.Variable(trainer.seed, dtype=tf.int64),
                batch=tf.Variable([self._state[0].shape[0], self.batch_size], dtype=tf.int64),
                best=self._best,
                position=self._position,
                shards=tf.Variable(tf.constant(names, tf.string, (len(names),))),
            )
        self.latest = CheckpointFolder(folder.path, max_to_keep)
        self.best_folder = CheckpointFolder(folder.best, 1)

    def save(self, step: int, position: Position | None = None) -> str:
        """Save the trainer after `step` steps; return the checkpoint's path.

        Args:
            position: of the readers after the window that was trained on last.
        Raises: WeightsError if it cannot be written, NotFiniteError if it holds a number that is
            not finite; those before it are not touched then.
        """
        if step == self._saved_step:
            return self.latest.path(step)
        self._note(step, position)
        for variable, array in zip(self._state, self.trainer.global_state(), strict=True):
            variable.assign(array)
        self._check_finite(step)
        if self.folder.writes:
            self.latest.write(self._checkpoint, step)
        self._saved_step = step
        return self.latest.path(step)

    def save_if_best(self, step: int, perplexity: float) -> bool:
        """Save what was saved or restored last once more, in `best`, if nothing was better."""
        if not perplexity < self.best:
            return False
        self.best = perplexity
        self._best.assign(perplexity)
        if self.folder.writes:
            self.best_folder.write(self._checkpoint, step)
            self.folder.copy_inputs_to_best()
        return True

    def _note(self, step: int, position: Position | None) -> None:
        """Set where the run is in what will be saved."""
        self._step.assign(step)
        self._best.assign(self.best)
        for name, array in (position or {}).items():
            self._position[name].assign(array)

    def _check_finite(self, step: int) -> None:
        """Look through all numbers, a variable at a time."""
        for group, variables in self._model.items():
            named = variables.items() if isinstance(variables, dict) else enumerate(variables)
            for name, variable in named:
                try:
                    tf.debugging.check_numerics(variable, "")
                except tf.errors.InvalidArgumentError:
                    raise NotFiniteError(
                        f"step {step}: {group}/{name} is not finite, so that nothing was saved; "
                        "the last checkpoint stands; lower learning_rate"
                    ) from None

    def restore(self, saved: Saved, compares: bool = True) -> None:
        """Bring weights, slots, states and place back, and the best score.

        Args:
            saved: the checkpoint.
            compares: whether that score compares with those to come: no other text was measured.
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
            status = tf.train.Checkpoint(**self._model).read(saved.path)
            status.assert_existing_objects_matched().expect_partial()
        except (*UNREADABLE, ValueError, AssertionError) as error:
            raise WeightsError(
                f"{saved.path}: not a checkpoint of this model ({reason(error)})"
            ) from error
        self.trainer.set_state([variable.numpy() for variable in self._state])
        best = self.folder.find_best()
        # What is kept tells: a checkpoint may be older than a measurement of another text.
        self.best = saved.best if best is None else best.best
        self.best = self.best if compares else math.inf
        self._note(saved.step, saved.position)
        self._saved_step = saved.step
