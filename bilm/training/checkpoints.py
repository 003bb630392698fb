"""Saves the state of a run (weights, slots, LSTM states, position in the text) and restores it."""

from dataclasses import replace

from bilm.data.stream import Position
from bilm.errors import WeightsError
from bilm.storage.checkpoint import Checkpoint, CheckpointContent, CheckpointFolder
from bilm.storage.names import stored_variables
from bilm.storage.run_record import RunRecord
from bilm.training.measurement import Measurement
from bilm.training.run_folder import RunFolder
from bilm.training.step import Trainer


class RunCheckpoints:
    """Saves a `Trainer` and its position in the text to a run's folder, and restores them.

    Args:
        record: what the JSON files of the checkpoints contain; step and lowest held-out perplexity
            are set here.
        keep: number of checkpoints to keep, in addition to the best one.
    """

    def __init__(self, trainer: Trainer, folder: RunFolder, record: RunRecord, keep: int):
        self.trainer = trainer
        self.folder = folder
        self.record = record
        self._saved_step = -1
        self.content = CheckpointContent(
            {name: variable.value for name, variable in stored_variables(trainer.model).items()},
            trainer.optimizer.slots,
            trainer.global_state(),
            trainer.model.directions,
        )
        self._latest = CheckpointFolder(folder.path, keep)
        self._best = CheckpointFolder(folder.best, 1)

    def save(self, step: int, position: Position | None = None) -> str:
        """Save the trainer after `step` steps, with the readers' position; return the path.

        Raises: WeightsError if it cannot be written, NotFiniteError if a number is not finite;
            earlier checkpoints are not touched then.
        """
        if step != self._saved_step:
            self.record = replace(self.record, step=step)
            self.content.set_state(self.trainer.global_state(), position)
            self.content.check_finite(step)
            if self.folder.writes:
                self._latest.write(self.content, self.record)
            self._saved_step = step
        return self._latest.path(step)

    def save_if_best(self, measured: Measurement) -> bool:
        """If the perplexity is the lowest so far, write the state that was last saved or restored
        to the folder `best` too; return whether it is."""
        perplexity = measured.perplexity.mean
        if self.record.best is not None and not perplexity < self.record.best:
            return False
        self.record = replace(self.record, best=perplexity)
        if self.folder.writes:
            # First, so that a kill never leaves a checkpoint in `best` without them.
            self.folder.copy_inputs_to_best(measured)
            self._best.write(self.content, self.record)
        return True

    def restore(self, checkpoint: Checkpoint, same_heldout: bool = True) -> None:
        """Restore weights, slots, states, position in the text and, if it was measured on the
        present held-out text, the best score. Raises: WeightsError if the checkpoint belongs to
        another model or has another seed."""
        stored = checkpoint.record
        if stored.seed != self.record.seed:  # the order of the text would differ
            raise WeightsError(
                f"{checkpoint.path}: saved with seed {stored.seed}, not {self.record.seed}"
            )
        self.trainer.set_state(self.content.restore(checkpoint))
        self._saved_step = stored.step
        kept = self.folder.find_best(whole=True)
        # The score in the folder `best` takes precedence: the checkpoint may predate it.
        best = stored.best if kept is None else kept.record.best
        self.record = replace(self.record, step=stored.step, best=best if same_heldout else None)
