"""What happens between the steps of a run: saving, evaluating, keeping a time budget."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from absl import logging

from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.options.run_options import RunOptions
from bilm.scoring.evaluation import Evaluator, heldout_windows
from bilm.scoring.perplexity import Perplexity
from bilm.storage.checkpoint import Checkpoint
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.plan import Heldout, Plan, check_unchanged
from bilm.training.report import RunReport
from bilm.training.run_folder import Measurement
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


class Evaluate:
    """Measures the held-out text when an evaluation is due, and keeps the best checkpoint."""

    def __init__(self, setup: Setup, report: RunReport):
        self.folder, self.hosts = setup.checkpoints.folder, setup.trainer.devices.hosts
        self.plan, self.heldout, self.checkpoints = setup.plan, setup.heldout, setup.checkpoints
        unk = -1 if self.heldout is None else self.heldout.reader.vocab.unk
        self.report, self.evaluator = report, Evaluator(setup.trainer.model, unk)

    def is_due(self, step: int) -> bool:
        """Return whether an evaluation follows this number of steps."""
        at_end = step == self.plan.n_steps
        return self.heldout is not None and (step % self.plan.eval_steps == 0 or at_end)

    def __call__(self, progress: Progress) -> None:
        """If an evaluation is due, measure the held-out text, and keep the best checkpoint.

        Raises: DataError if the text has changed, before or after it is read; BilmError if the
            folder of the run was moved.
        """
        step, (_, n_rows) = progress.step, self.checkpoints.record.batch
        if self.heldout is None or not self.is_due(step):
            return
        reader, described, *_, compared = self.heldout

        def measure() -> Perplexity:
            check_unchanged(reader.shards, described, step)
            found = self.evaluator(heldout_windows(reader, n_rows))
            check_unchanged(reader.shards, described, step)
            return found

        with self.report.evaluating():
            found = Perplexity(*self.hosts.from_chief("evaluation", measure))
            self.folder.check_held(step)
            is_best = self.checkpoints.save_if_best(found.mean)
            self.report.heldout(step, found, compared, is_best)
            # The history first: after a kill between the two, a resumed run measures again.
            self.report.flush(step)
            self.folder.write_measured(Measurement(step, found, described))
        progress.perplexity = found


class Save:
    """Saves a checkpoint when one is due: see `Saving`, before an evaluation and at the end.

    It first checks that the folder was not moved and that the text, `shards`, has not changed,
    which it also does at the end of each epoch.
    """

    def __init__(
        self, setup: Setup, saving: Saving, report: RunReport, shards: Shards, evaluate: Evaluate
    ):
        self.saving, self.hosts, self.shards = saving, setup.trainer.devices.hosts, shards
        self.plan, self.checkpoints = setup.plan, setup.checkpoints
        self.described, self.folder = setup.checkpoints.record.shards, setup.checkpoints.folder
        self.report, self.evaluate = report, evaluate
        self.last = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the last save is too long ago."""
        return time.monotonic() - self.last > 60 * self.saving.minutes

    def __call__(self, progress: Progress, late: bool) -> None:
        """Save if a save is due; `late`: whether the last one is too long ago for any worker.

        Raises: DataError if the text has changed, BilmError if the folder was moved.
        """
        step = progress.step
        if step % self.plan.epoch_steps == 0:
            check_unchanged(self.shards, self.described, step)
        at_interval = step % self.saving.steps == 0 or step == self.plan.n_steps
        # Before an evaluation too: if that fails, no step is lost.
        if late or at_interval or self.evaluate.is_due(step):
            self.now(progress)

    def now(self, progress: Progress) -> str:
        """Save, and return the path."""
        self.folder.check_held(progress.step)
        check_unchanged(self.shards, self.described, progress.step)
        # The place in the text differs if the texts of workers differ.
        arrays = [array.tobytes() for _, array in sorted((progress.position or {}).items())]
        place = {f"the place in the text after step {progress.step}": zlib.crc32(b"".join(arrays))}
        self.hosts.check_alike("place", lambda: place)
        return self._write(progress)

    def before_error(self, progress: Progress) -> None:
        """Save the steps before an error in the text."""
        if progress.position is not None:
            self.folder.check_held(progress.step)
            logging.info("step %d: saved %s", progress.step, self._write(progress))

    def _write(self, progress: Progress) -> str:
        self.report.flush(progress.step)
        path = self.checkpoints.save(progress.step, progress.position)
        self.last = time.monotonic()
        return path


class Budget:
    """Changes the length of a run so that it ends on time, from the measured times of its steps.

    A change is saved at once: a resumed run continues with the length in its checkpoint.

    Args:
        deadline: `time.monotonic()` at which the run should end; None for no budget.
    """

    def __init__(self, setup: Setup, report: RunReport, save: Save, deadline: float | None):
        self.setup, self.report, self.save, self.deadline = setup, report, save, deadline
        self.longest = setup.options.n_epochs * setup.plan.epoch_steps
        self.seconds = (deadline or 0.0) - time.monotonic()
        self.last: tuple[int, float] | None = None  # step and time, without evaluations
        self.pace = 0.0  # seconds of a step, with its share of the saves
        self.stated = setup.plan.n_steps  # the length in the log; small changes are not stated

    def __call__(self, progress: Progress) -> None:
        """Measure the pace now and then; change the length if the run would be late or early."""
        plan, step, now = self.setup.plan, progress.step, time.monotonic()
        if self.deadline is None or step >= plan.n_steps:
            return
        trained = now - self.report.evaluated
        if self.last is None:  # the first step included compiling the graph
            self.last = step, trained
        since, before = self.last
        if trained - before < max(5.0, 0.02 * self.seconds):
            return
        pace = (trained - before) / (step - since)
        self.last, self.pace = (step, trained), (self.pace or pace) / 2 + pace / 2
        # Before the first evaluation: a prediction takes about as long as in training.
        n = self.setup.heldout.n_predictions if self.setup.heldout else 0
        evaluation = self.report.last_evaluation or self.pace * n / plan.predictions_a_step
        each = self.pace + evaluation / plan.eval_steps
        left = max(0.0, self.deadline - now - evaluation)
        n_steps = min(self.longest, step + max(1, int(left / each)))
        if abs(plan.n_steps - n_steps) * each <= 0.01 * self.seconds + 0.1 * left:
            return
        if abs(n_steps - self.stated) > 0.25 * self.stated:
            logging.info("%d steps instead of %d, to end on time", n_steps, self.stated)
            self.stated = n_steps
        plan.n_steps = self.setup.trainer.schedule.n_steps = n_steps
        saved = self.setup.checkpoints
        auto = {**(saved.record.auto or {}), "n_steps": n_steps}
        saved.record = replace(saved.record, n_steps=n_steps, auto=auto)
        self.save.now(progress)
