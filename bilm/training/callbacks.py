"""What happens between the steps of a run: watching files, saving, evaluating."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from absl import logging

from bilm.data.dataset import Reader
from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import Evaluator, Perplexity, heldout_windows
from bilm.storage.checkpoint import Checkpoint
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.plan import Heldout, Plan, check_unchanged
from bilm.training.report import RunReport
from bilm.training.run_folder import Measurement, RunFolder
from bilm.training.settings import Saving
from bilm.training.step import Trainer


class Setup(NamedTuple):
    """A run before its next step.

    Fields:
        options: options of one replica.
        plan: numbers of steps in the run, in an epoch and between evaluations.
        heldout: what is measured; None to measure nothing.
        trainer, checkpoints: the model with its optimizer, and its checkpoints; restored if the run
            is resumed.
        checkpoint: the restored checkpoint; None for a new run.
        step: number of steps that were done before.
        perplexity: of the held-out text after these steps; None if it was not measured then.
    """

    options: RunOptions
    plan: Plan
    heldout: Heldout | None
    trainer: Trainer
    checkpoints: RunCheckpoints
    checkpoint: Checkpoint | None
    step: int
    perplexity: Perplexity | None

    @property
    def is_done(self) -> bool:
        """Whether no step and no evaluation is left."""
        is_measured = self.heldout is None or self.perplexity is not None
        return self.step > self.plan.n_steps or (self.step == self.plan.n_steps and is_measured)


@dataclass
class Progress:
    """The place that a run has reached.

    Args:
        step: number of steps that are done.
        position: position of the readers after these steps; None before the first.
        perplexity: the last held-out perplexity; None if nothing was measured.
    """

    step: int
    position: Position | None
    perplexity: Perplexity | None


class Watch:
    """Ends a run whose folder was moved or removed, or whose text has changed.

    Args:
        folder: folder of the run.
        shards, described: the text, and name and size of each of its files at the start.
        plan: steps of an epoch; the files are compared at least once per epoch.
    """

    def __init__(self, folder: RunFolder, shards: Shards, described: Sequence[str], plan: Plan):
        self.folder, self.shards, self.described, self.plan = folder, shards, described, plan

    def __call__(self, progress: Progress) -> None:
        """Compare the text at the end of an epoch. Raises: DataError."""
        if progress.step % self.plan.epoch_steps == 0:
            check_unchanged(self.shards, self.described, progress.step)

    def before_save(self, progress: Progress) -> None:
        """Check the folder and the text. Raises: BilmError, DataError."""
        self.folder.check_held(progress.step)
        check_unchanged(self.shards, self.described, progress.step)


class Evaluate:
    """Measures the held-out text when an evaluation is due, and keeps the best checkpoint."""

    def __init__(self, setup: Setup, report: RunReport):
        self.folder, self.hosts = setup.checkpoints.folder, setup.trainer.devices.hosts
        self.plan, self.heldout, self.checkpoints = setup.plan, setup.heldout, setup.checkpoints
        self.report, self.evaluator = report, Evaluator(setup.trainer.model)

    def is_due(self, step: int) -> bool:
        """Return whether an evaluation follows this number of steps."""
        at_end = step == self.plan.n_steps
        return self.heldout is not None and (step % self.plan.eval_steps == 0 or at_end)

    def __call__(self, progress: Progress) -> None:
        """If an evaluation is due, measure the part of the held-out text that selects the best
        checkpoint; at the end of the run, also the whole text."""
        step = progress.step
        if self.heldout is None or not self.is_due(step):
            return
        whole, part, described, _ = self.heldout
        with self.report.evaluating():
            found = of_part = self._measure(step, part, whole is part)
            if self.checkpoints.save_if_best(found.mean):
                logging.info("step %s: the best so far, kept in best", f"{step:,}")
            if step == self.plan.n_steps and whole is not part:
                found = self._measure(step, whole, True)
            # The history first: after a kill between the two, a resumed run measures again.
            self.report.flush(step)
            self.folder.write_measured(Measurement(step, found, of_part.mean, described))
        progress.perplexity = found

    def _measure(self, step: int, heldout: Reader, whole: bool) -> Perplexity:
        """Measure the perplexity of a reader of the held-out text.

        Raises: DataError if the text has changed, before or after it is read; BilmError if the
            folder of the run was moved.
        """
        assert self.heldout is not None
        described, (_, n_rows) = self.heldout.described, self.checkpoints.record.batch

        def measure() -> Perplexity:
            check_unchanged(heldout.shards, described, step)
            found = self.evaluator(heldout_windows(heldout, n_rows))
            check_unchanged(heldout.shards, described, step)
            return found

        found = Perplexity(*self.hosts.from_chief("evaluation", measure))
        self.report.heldout(step, found, self.heldout.compared, whole)
        self.folder.check_held(step)
        return found


class Save:
    """Saves a checkpoint when one is due: see `Saving`, before an evaluation and at the end."""

    def __init__(
        self, setup: Setup, saving: Saving, report: RunReport, watch: Watch, evaluate: Evaluate
    ):
        self.saving, self.hosts = saving, setup.trainer.devices.hosts
        self.plan, self.checkpoints = setup.plan, setup.checkpoints
        self.report, self.watch, self.evaluate = report, watch, evaluate
        self.last = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the last save is too long ago."""
        return time.monotonic() - self.last > 60 * self.saving.minutes

    def __call__(self, progress: Progress, late: bool) -> None:
        """Save if a save is due; `late`: whether the last one is too long ago for any worker."""
        step = progress.step
        at_interval = step % self.saving.steps == 0 or step == self.plan.n_steps
        # Before an evaluation too: if that fails, no step is lost.
        if late or at_interval or self.evaluate.is_due(step):
            self.now(progress)

    def now(self, progress: Progress, message: str = "step %d: saved %s") -> None:
        """Save, and log a message with the step and the path."""
        self.watch.before_save(progress)
        # The place in the text differs if the texts of workers differ.
        arrays = [array.tobytes() for _, array in sorted((progress.position or {}).items())]
        place = {f"the place in the text after step {progress.step}": zlib.crc32(b"".join(arrays))}
        self.hosts.check_alike("place", lambda: place)
        self._write(progress, message)

    def before_error(self, progress: Progress) -> None:
        """Save the steps before an error in the text."""
        if progress.position is not None:
            self.watch.folder.check_held(progress.step)
            self._write(progress, "step %d: saved %s")

    def _write(self, progress: Progress, message: str) -> None:
        self.report.flush(progress.step)
        path = self.checkpoints.save(progress.step, progress.position)
        logging.info(message, progress.step, path)
        self.last = time.monotonic()
