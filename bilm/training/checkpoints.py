"""Saves a run (its progress, weights, slots, LSTM states) to its folder and restores it."""

from bilm.scoring.measurement import Measurement
from bilm.storage.checkpoint import Checkpoint, CheckpointContent, checkpoint_path
from bilm.storage.names import stored_variables
from bilm.training.run_folder import RunFolder
from bilm.training.spec import RunProgress, RunSpec
from bilm.training.step import Trainer


class RunCheckpoints:
    """Saves a `Trainer` and the progress of its run to a run's folder, and restores them; `keep`:
    number of checkpoints to keep, in addition to the best one."""

    def __init__(self, trainer: Trainer, folder: RunFolder, keep: int):
        self.trainer = trainer
        self.folder = folder
        self._keep = keep
        self._saved_step = -1
        self.content = CheckpointContent(
            {name: variable.value for name, variable in stored_variables(trainer.model).items()},
            trainer.optimizer.slots,
            trainer.global_state(),
            trainer.model.directions,
        )

    def save(self, spec: RunSpec, progress: RunProgress) -> str:
        """Save the run, unless its last step is saved; return the path.

        Raises: WeightsError if it cannot be written, NotFiniteError if a number is not finite;
            earlier checkpoints are not touched then.
        """
        step = progress.step
        if step != self._saved_step:
            self.content.set_state(self.trainer.global_state(), progress.position)
            self.content.check_finite(step)
            if self.folder.writes:
                self.content.write(self.folder.path, spec.record(progress), self._keep)
            self._saved_step = step
        return checkpoint_path(self.folder.path, step)

    def save_best(self, spec: RunSpec, progress: RunProgress, measured: Measurement) -> None:
        """Write the state that was last saved or restored to the folder `best` too."""
        if self.folder.writes:
            # First, so that a kill never leaves a checkpoint in `best` without them.
            self.folder.copy_inputs_to_best(measured)
            self.content.write(self.folder.best, spec.record(progress), keep=1)

    def restore(self, checkpoint: Checkpoint) -> RunProgress:
        """Restore weights, slots and states; return the progress without a measurement. Raises:
        WeightsError if the checkpoint belongs to another model."""
        self.trainer.set_state(self.content.restore(checkpoint))
        record = checkpoint.record
        self._saved_step = record.step
        # The score in the folder `best` takes precedence: the checkpoint may predate it.
        kept = self.folder.find_best(whole=True)
        best = record.best if kept is None else kept.record.best
        return RunProgress(
            step=record.step,
            position=checkpoint.position,
            best=best,
            processor_seconds=record.processor_seconds,
        )
