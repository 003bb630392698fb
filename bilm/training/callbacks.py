"""What happens between the steps of a run: saving, evaluating, keeping a time budget."""

import os
import time
import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from absl import logging

from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.data.verdict import Comparison
from bilm.scoring.perplexity import Perplexity
from bilm.support.process import available_cores
from bilm.training.auto import expected_ratio, recipe_for
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.evaluation import Evaluator, heldout_windows
from bilm.training.measurement import Measurement
from bilm.training.plan import Heldout, Plan, check_unchanged
from bilm.training.report import RunReport
from bilm.training.settings import Saving
from bilm.training.step import Trainer

USEFUL_STEPS = 100  # of the shortest run that learns anything


@dataclass
class Progress:
    """The number of steps that a run has done, the position of the readers after them, and the last
    held-out perplexity; in a run that is resumed, None unless it was measured after these steps."""

    step: int
    position: Position | None
    perplexity: Perplexity | None


class Setup(NamedTuple):
    """A run between two steps; without `heldout`, nothing is measured."""

    plan: Plan
    heldout: Heldout | None
    trainer: Trainer
    checkpoints: RunCheckpoints
    progress: Progress

    @property
    def is_done(self) -> bool:
        """Whether no step and no evaluation is left."""
        left = self.plan.n_steps - self.progress.step
        is_measured = self.heldout is None or self.progress.perplexity is not None
        return left < 0 or (left == 0 and is_measured)

    @property
    def is_evaluation_due(self) -> bool:
        """Whether an evaluation follows the last step."""
        step = self.progress.step
        is_planned = step % self.plan.eval_steps == 0 or step == self.plan.n_steps
        return self.heldout is not None and is_planned


class Evaluate:
    """Measures the held-out text when an evaluation is due, and keeps the best checkpoint."""

    def __init__(self, setup: Setup, report: RunReport):
        self.setup = setup
        self.report = report
        unk = -1 if setup.heldout is None else setup.heldout.reader.vocab.unk
        self.evaluator = Evaluator(setup.trainer.model, unk)

    def __call__(self) -> None:
        """Evaluate if it is due. Raises: DataError if the text has changed, before or after it is
        read; BilmError if the folder of the run was moved."""
        step = self.setup.progress.step
        heldout = self.setup.heldout
        checkpoints = self.setup.checkpoints
        if heldout is None or not self.setup.is_evaluation_due:
            return

        def measure() -> Perplexity:
            shards = heldout.reader.shards
            n_rows = checkpoints.record.batch_size
            windows = heldout_windows(heldout.reader, n_rows)
            check_unchanged(shards, heldout.described, step)
            perplexity = self.evaluator(windows)
            if shards.left_out and step == self.setup.plan.n_steps:  # once, as it takes as long
                whole = type(heldout.reader)(shards.without(()), heldout.reader.vocab, test=True)
                of_all = self.evaluator(heldout_windows(whole, n_rows))
                logging.info("with the sentences of the training text: perplexity %s", of_all)
            check_unchanged(shards, heldout.described, step)
            return perplexity

        with self.report.evaluating():
            hosts = self.setup.trainer.devices.hosts
            perplexity = Perplexity(*hosts.from_chief("evaluation", measure))
            checkpoints.folder.check_held(step)
            compared = compared_after(self.setup, step, self.report)
            measured = Measurement(step, perplexity, heldout.described, compared)
            is_best = checkpoints.save_if_best(measured)
            self.report.heldout(step, perplexity, str(compared), is_best)
            # The history first: after a kill between the two, a resumed run measures again.
            self.report.flush(step)
            checkpoints.folder.write_measured(measured)
        self.setup.progress.perplexity = perplexity


class Save:
    """Saves a checkpoint when one is due: see `Saving`, before an evaluation and at the end.

    It first checks that the folder was not moved and that the text, `shards`, has not changed,
    which it also does at the end of each epoch.
    """

    def __init__(self, setup: Setup, saving: Saving, report: RunReport, shards: Shards):
        self.setup = setup
        self.checkpoints = setup.checkpoints
        self.saving = saving
        self.report = report
        self.shards = shards
        self.last = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the last save is too long ago."""
        return time.monotonic() - self.last > 60 * self.saving.minutes

    def __call__(self, late: bool) -> None:
        """Save if a save is due; `late`: whether the last one is too long ago for any worker.
        Raises: DataError if the text has changed, BilmError if the folder was moved."""
        step = self.setup.progress.step
        plan = self.setup.plan
        if step % plan.epoch_steps == 0:
            check_unchanged(self.shards, self.checkpoints.record.shards, step)
        at_interval = step % self.saving.steps == 0 or step == plan.n_steps
        # Before an evaluation too: if that fails, no step is lost.
        if late or at_interval or self.setup.is_evaluation_due:
            self.now()

    def now(self) -> str:
        """Save, and return the path."""
        progress = self.setup.progress
        self.checkpoints.folder.check_held(progress.step)
        check_unchanged(self.shards, self.checkpoints.record.shards, progress.step)
        # The place in the text differs if the texts of workers differ.
        checksum = 0
        for _, array in sorted((progress.position or {}).items()):
            checksum = zlib.crc32(array.tobytes(), checksum)
        place = {f"the place in the text after step {progress.step}": checksum}
        self.setup.trainer.devices.hosts.check_alike("place", lambda: place)
        return self._write()

    def before_error(self) -> None:
        """Save the steps before an error in the text."""
        progress = self.setup.progress
        if progress.position is not None:
            self.checkpoints.folder.check_held(progress.step)
            logging.info("step %d: saved %s", progress.step, self._write())

    def _write(self) -> str:
        progress = self.setup.progress
        self.report.flush(progress.step)
        path = self.checkpoints.save(progress.step, progress.position)
        self.last = time.monotonic()
        return path


class Moment(NamedTuple):
    """When the pace of a run was measured: number of steps; seconds without evaluations, on the
    clock, and of all processors."""

    step: int
    trained: float
    time: float
    computed: float


class Budget:
    """Changes the length of a run so that it ends on time, from the measured times of its steps.

    A change is saved at once: a resumed run continues with the length in its checkpoint.

    `deadline`: `time.monotonic()` at which the run should end; None for no budget.
    """

    def __init__(self, setup: Setup, report: RunReport, save: Save, deadline: float | None):
        self.setup = setup
        self.plan = setup.plan
        self.report = report
        self.save = save
        self.deadline = deadline
        self.longest = setup.trainer.options.n_epochs * setup.plan.epoch_steps
        self.seconds = (deadline or 0.0) - time.monotonic()  # of the whole run
        self.last: Moment | None = None
        self.pace = 0.0  # seconds of a step, with its share of the saves
        self.step_seconds = 0.0  # the same, with its share of the evaluations
        self.has_warned = False  # of a busy machine

    def __call__(self) -> None:
        """Measure the pace now and then; change the length if the run would be late or early."""
        step = self.setup.progress.step
        if self.deadline is None or step >= self.plan.n_steps:
            return
        is_first = not self.pace
        now = time.monotonic()
        moment = Moment(step, now - self.report.evaluated, now, time.process_time())
        if not self._measure_pace(moment):
            return
        n_steps = self._length(self.deadline, step, now)
        if is_first:
            self._warn_if_short(n_steps, now - self.deadline)
        if is_first or n_steps != self.plan.n_steps:
            self._change(n_steps)
            self.save.now()

    def _measure_pace(self, moment: Moment) -> bool:
        """Return whether enough time has passed for a new measurement of the pace."""
        last = self.last = self.last or moment  # the first step included compiling the graph
        trained = moment.trained - last.trained
        if trained < max(5.0, 0.02 * self.seconds):
            return False
        pace = trained / (moment.step - last.step)
        self.pace = (self.pace or pace) / 2 + pace / 2
        self._warn_if_busy((moment.computed - last.computed) / (moment.time - last.time))
        self.last = moment
        return True

    def _length(self, deadline: float, step: int, now: float) -> int:
        """Return the length of the run that ends at the deadline; the present length if it ends
        about then, or if the rate decays already and would rise in a longer run."""
        plan = self.plan
        # Before the first evaluation: a prediction takes about as long as in training.
        n_predictions = self.setup.heldout.n_predictions if self.setup.heldout else 0
        evaluation = self.pace * n_predictions / plan.predictions_a_step
        evaluation = self.report.last_evaluation or evaluation
        self.step_seconds = self.pace + evaluation / plan.eval_steps

        left = max(0.0, deadline - now - evaluation)
        n_steps = min(self.longest, step + max(1, int(left / self.step_seconds)))
        change = abs(plan.n_steps - n_steps) * self.step_seconds
        is_close = change <= 0.01 * self.seconds + 0.1 * left
        rises = n_steps > plan.n_steps and self.setup.trainer.schedule.is_decaying(step)
        return plan.n_steps if is_close or rises else n_steps

    def _warn_if_busy(self, n_used: float) -> None:
        """Warn once if other programs leave this run few of its processors; `n_used`: the mean
        number that it has used."""
        is_on_cpu = self.setup.trainer.devices.names[0].startswith("CPU")
        percent = 100 * n_used / available_cores()
        # A quiet machine may have more processors than a step can use.
        is_loaded = os.getloadavg()[0] > (os.cpu_count() or 1)
        if is_on_cpu and is_loaded and percent < 60 and not self.has_warned:
            self.has_warned = True
            logging.warning("the machine is busy: this run gets %.0f %% of its processors", percent)

    def _warn_if_short(self, n_steps: int, late: float) -> None:
        """Warn of a budget that is too short for `USEFUL_STEPS` steps; `late`: seconds since it
        ended, negative before."""
        n_missing = min(USEFUL_STEPS, self.longest) - n_steps
        if n_missing > 0:
            requested = (self.setup.checkpoints.record.auto or {}).get("hours") or 0.0
            missing = max(0.0, late) + n_missing * self.step_seconds
            enough = requested + missing / 3600
            logging.warning(
                "--hours %g: too short: the run ends after %d steps; %.2g hours suffice for %d",
                requested, n_steps, enough, n_steps + n_missing,
            )  # fmt: skip

    def _change(self, n_steps: int) -> None:
        """Change the length of the run, also in the record of its next checkpoint."""
        before = self.plan.n_steps
        self.plan.n_steps = self.setup.trainer.schedule.n_steps = n_steps
        checkpoints = self.setup.checkpoints
        auto = {**(checkpoints.record.auto or {}), "n_steps": n_steps}
        checkpoints.record = replace(checkpoints.record, n_steps=n_steps, auto=auto)
        if n_steps != before:
            logging.info("%d steps instead of %d, to end on time", n_steps, before)
            log_expected(self.setup)


def compared_after(setup: Setup, step: int, report: RunReport | None) -> Comparison | None:
    """Return what the model after `step` steps is compared with; None without held-out text."""
    if setup.heldout is None:
        return None
    plan = setup.plan
    n_tokens = setup.trainer.options.n_train_tokens or 1
    compared = setup.heldout.compared.replace(n_epochs=step * plan.predictions_a_step / n_tokens)
    if not setup.checkpoints.record.auto:
        return compared
    n_useful = recipe_for(n_tokens).n_epochs
    return compared.replace(
        n_useful=n_useful,
        hours=report and report.hours(n_useful * plan.epoch_steps),
        ratio=expected_ratio(plan.n_steps * plan.predictions_a_step, n_tokens),
    )


def log_expected(setup: Setup) -> None:
    """Log which held-out perplexity a run of `auto` should reach."""
    compared = compared_after(setup, setup.plan.n_steps, None)
    if compared and compared.expected:
        logging.info("auto: expected held-out perplexity: %.0f to %.0f", *compared.expected)
