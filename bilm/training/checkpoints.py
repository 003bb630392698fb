"""What a training run saves (weights, slots, LSTM states, position in the text), and when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from bilm.data.stream import Position
from bilm.errors import OptionsError
from bilm.storage.checkpoint import Checkpoint, CheckpointContent, CheckpointFolder
from bilm.storage.names import stored_variables
from bilm.training.plan import integer
from bilm.training.run_folder import RunFolder
from bilm.training.step import Trainer


@dataclass(frozen=True)
class Saving:
    """Intervals between checkpoints, in steps and in minutes (whichever ends first), and number of
    checkpoints to keep.

    Args:
        steps: steps between checkpoints.
        minutes: minutes between checkpoints.
        keep: number of recent checkpoints to keep, in addition to the best one.
    Raises: OptionsError for less than 1 step, 1 checkpoint or 0 minutes.
    """

    steps: int = 1_000
    minutes: float = 15.0
    keep: int = 3

    def __post_init__(self) -> None:
        for name in ("steps", "keep"):
            integer(f"Saving.{name}", getattr(self, name), 1)
        if not (isinstance(self.minutes, Real) and self.minutes >= 0):
            raise OptionsError(f"Saving.minutes: found {self.minutes!r}, expected a number from 0")


class RunCheckpoints:
    """Saves a `Trainer` and its position in the text to a run's folder, and restores them.

    Args:
        trainer: trainer whose state is saved and restored.
        folder: folder of the run.
        n_steps: length of the run.
        shards: name and size of each file of the text, see `bilm.data.stream.describe_shards`.
        batch_size: rows per replica requested when the run was started.
        keep: number of checkpoints to keep, in addition to the best one.
        vocabulary: `Vocabulary.digest` of the words of the run.
    Attributes: `best`, the lowest held-out perplexity so far.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        n_steps: int,
        shards: Sequence[str],
        batch_size: int,
        keep: int,
        vocabulary: str,
    ):
        self.trainer, self.folder = trainer, folder
        self.best, self._saved_step = math.inf, -1
        self.content = CheckpointContent(
            _values(stored_variables(trainer.model)),
            trainer.optimizer.slots,
            trainer.global_state(),
            trainer.model.directions,
            n_steps,
            trainer.seed,
            batch_size,
            shards,
            vocabulary,
        )
        self._latest = CheckpointFolder(folder.path, keep)
        self._best = CheckpointFolder(folder.best, 1)

    def save(self, step: int, position: Position | None = None) -> str:
        """Save the trainer after `step` steps; return the checkpoint's path.

        Args:
            position: position of the readers after the last window that was trained on.
        Raises: WeightsError if it cannot be written, NotFiniteError if a number is not finite;
            earlier checkpoints are not touched then.
        """
        if step == self._saved_step:
            return self._latest.path(step)
        self.content.set_place(step, self.best, position)
        self.content.set_state(self.trainer.global_state())
        self.content.check_finite(step)
        if self.folder.writes:
            self._latest.write(self.content, step)
        self._saved_step = step
        return self._latest.path(step)

    def save_if_best(self, step: int, perplexity: float, position: Position | None = None) -> bool:
        """If the perplexity is the lowest so far, write the state that was last saved or restored
        to the folder `best` too; return whether this was done."""
        if not perplexity < self.best:
            return False
        self.best = perplexity
        self.content.set_place(step, perplexity, position)
        if self.folder.writes:
            # First, so that a kill never leaves a checkpoint in `best` without them.
            self.folder.copy_inputs_to_best()
            self._best.write(self.content, step)
        return True

    def restore(self, checkpoint: Checkpoint, same_heldout: bool = True) -> None:
        """Restore weights, slots, states, position in the text and the best score.

        Args:
            same_heldout: whether the stored best score was measured on the current held-out text.
        Raises: WeightsError if the checkpoint belongs to another model or has another number of
            rows.
        """
        self.trainer.set_state(self.content.restore(checkpoint))
        kept = self.folder.find_best(whole=True)
        # The score in the folder `best` takes precedence: the checkpoint may predate it.
        best = checkpoint.best if kept is None else kept.best
        self.best = best if same_heldout else math.inf
        self._saved_step = checkpoint.step or 0
        self.content.set_place(self._saved_step, self.best, checkpoint.position)


def _values(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the TensorFlow variables of Keras variables."""
    return {name: variable.value for name, variable in variables.items()}
