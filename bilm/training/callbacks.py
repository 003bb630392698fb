"""What happens between the steps of a run: saving, evaluating, keeping a time budget."""

import math
import time
import zlib
from dataclasses import dataclass, replace

from absl import logging

from bilm.data.shards import Shards
from bilm.data.stream import Position
from bilm.options import schema
from bilm.scoring.perplexity import Perplexity
from bilm.scoring.verdict import Comparison
from bilm.support.process import available_cores, is_machine_busy
from bilm.training.auto import changes_for, expected_ratio, recipe_for
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.evaluation import Evaluator, heldout_windows
from bilm.training.measurement import Measurement
from bilm.training.plan import Heldout, Plan, check_unchanged
from bilm.training.report import RunReport
from bilm.training.settings import Saving
from bilm.training.step import Trainer

MEASURED_SECONDS = 5.0  # least time in which the pace and the share of the processors are measured
USEFUL_STEPS = 100  # of the shortest run that learns anything


@dataclass
class RunState:
    """A run between two steps."""

    plan: Plan
    trainer: Trainer
    checkpoints: RunCheckpoints
    report: RunReport
    heldout: Heldout | None  # None to measure nothing
    step: int  # number of steps done
    position: Position | None  # of the readers after them
    # The last held-out perplexity; in a run that is resumed, None unless it was measured after
    # these steps.
    perplexity: Perplexity | None

    @property
    def is_done(self) -> bool:
        """Whether no step and no evaluation is left."""
        left = self.plan.n_steps - self.step
        is_measured = self.heldout is None or self.perplexity is not None
        return left < 0 or (left == 0 and is_measured)

    @property
    def is_evaluation_due(self) -> bool:
        """Whether an evaluation follows the last step."""
        is_planned = self.step % self.plan.eval_steps == 0 or self.step == self.plan.n_steps
        return self.heldout is not None and is_planned

    def compared(self, step: int) -> Comparison | None:
        """Return what the model after `step` steps is compared with; None without held-out text."""
        if self.heldout is None:
            return None
        plan = self.plan
        n_tokens = self.trainer.options.n_train_tokens or 1
        compared = self.heldout.compared.replace(n_epochs=step * plan.predictions_a_step / n_tokens)
        if not self.checkpoints.record.auto:
            return compared
        n_useful = recipe_for(n_tokens).n_epochs
        n_words = self.heldout.reader.vocab.size
        ratio = expected_ratio(plan.n_steps * plan.predictions_a_step, n_tokens, n_words)
        of_useful = expected_ratio(n_useful * n_tokens, n_tokens, n_words)
        return compared.replace(
            n_useful=n_useful,
            hours=self.report.hours(n_useful * plan.epoch_steps),
            ratio=ratio,
            gain=max(0.0, 1 - of_useful / ratio),
        )

    def log_expected(self) -> None:
        """Log which held-out perplexity a run of `auto` should reach."""
        compared = self.compared(self.plan.n_steps)
        if compared and compared.expected:
            logging.info("auto: expected held-out perplexity: %.0f to %.0f", *compared.expected)


class Evaluate:
    """Measures the held-out text when an evaluation is due, and keeps the best checkpoint."""

    def __init__(self, run: RunState):
        self.run = run
        unk = -1 if run.heldout is None else run.heldout.reader.vocab.unk
        self.evaluator = Evaluator(run.trainer.model, unk)

    def __call__(self) -> None:
        """Evaluate if it is due. Raises: DataError if the text has changed, before or after it is
        read; BilmError if the folder of the run was moved."""
        run = self.run
        heldout = run.heldout
        checkpoints = run.checkpoints
        if heldout is None or not run.is_evaluation_due:
            return

        def measure() -> Perplexity:
            shards = heldout.reader.shards
            windows = heldout_windows(heldout.reader, checkpoints.record.batch_size)
            check_unchanged(shards, heldout.described, run.step)
            perplexity = self.evaluator(windows)
            if shards.left_out and run.step == run.plan.n_steps:  # once, as it takes as long
                whole = type(heldout.reader)(shards.without(()), heldout.reader.vocab, test=True)
                windows = heldout_windows(whole, checkpoints.record.batch_size)
                of_all = self.evaluator(windows)
                logging.info("with the sentences of the training text: perplexity %s", of_all)
            check_unchanged(shards, heldout.described, run.step)
            return perplexity

        with run.report.evaluating():
            hosts = run.trainer.devices.hosts
            perplexity = Perplexity(*hosts.from_chief("evaluation", measure))
            checkpoints.folder.check_held(run.step)
            compared = run.compared(run.step)
            measured = Measurement(run.step, perplexity, heldout.described, compared)
            is_best = checkpoints.save_if_best(measured)
            run.report.heldout(run.step, perplexity, str(compared), is_best)
            # The history first: after a kill between the two, a resumed run measures again.
            run.report.flush(run.step)
            checkpoints.folder.write_measured(measured)
        run.perplexity = perplexity


class Save:
    """Saves a checkpoint when one is due: see `Saving`, before an evaluation and at the end;
    unless the folder was moved or the text, `shards`, has changed."""

    def __init__(self, run: RunState, saving: Saving, shards: Shards):
        self.run = run
        self.saving = saving
        self.shards = shards
        self.last = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the last save is too long ago."""
        return time.monotonic() - self.last > 60 * self.saving.minutes

    def __call__(self, late: bool) -> None:
        """Save if a save is due; `late`: whether the last one is too long ago for any worker.
        Raises: DataError if the text has changed, BilmError if the folder was moved."""
        step = self.run.step
        plan = self.run.plan
        if step % plan.epoch_steps == 0:
            self._check_text()
        at_interval = step % self.saving.steps == 0 or step == plan.n_steps
        # Before an evaluation too: if that fails, no step is lost.
        if late or at_interval or self.run.is_evaluation_due:
            self.now()

    def now(self) -> str:
        """Save, and return the path."""
        self._check_text()
        # The place in the text differs if the texts of workers differ.
        checksum = 0
        for _, array in sorted((self.run.position or {}).items()):
            checksum = zlib.crc32(array.tobytes(), checksum)
        place = {f"the place in the text after step {self.run.step}": checksum}
        self.run.trainer.devices.hosts.check_alike("place", lambda: place)
        return self._write()

    def before_error(self) -> None:
        """Save the steps before an error in the text."""
        if self.run.position is not None:
            logging.info("step %d: saved %s", self.run.step, self._write())

    def _check_text(self) -> None:
        check_unchanged(self.shards, self.run.checkpoints.record.shards, self.run.step)

    def _write(self) -> str:
        run = self.run
        run.checkpoints.folder.check_held(run.step)
        run.report.flush(run.step)
        path = run.checkpoints.save(run.step, run.position)
        self.last = time.monotonic()
        return path


class Pace:
    """Measures the time of the steps of a run.

    On a CPU, it warns once if other programs leave the run few of its processors. With a time
    budget, it changes the length so that the run ends on time, and once learning rate and
    regularization, which depend on the length. A resumed run continues with these changes.

    `deadline`: `time.monotonic()` at which the run should end; infinity for no budget.
    """

    def __init__(self, run: RunState, save: Save, deadline: float):
        self.run = run
        self.save = save
        self.deadline = deadline
        self.longest = run.trainer.options.n_epochs * run.plan.epoch_steps
        self.shortest = min(USEFUL_STEPS, self.longest)  # of the useful lengths
        self.start = time.monotonic()
        self.interval = max(MEASURED_SECONDS, 0.02 * (deadline - self.start))  # between changes
        self.first = 0.0  # seconds of the first step, most of them to compile the graph
        # At the end of the step that compiled the graph, the latter two in seconds
        self.compiled_step = run.step + 1
        self.compiled = 0.0  # of training
        self.computed = 0.0  # of all processors
        self.next_time = 0.0  # of the next measurement, in seconds of training
        self.mean = 0.0  # seconds of a step, with its share of the saves
        self.missing = 0.0  # seconds that `shortest` steps take beyond the budget

    def __call__(self) -> None:
        """Measure now and then; change the length if the run would be late or early."""
        step = self.run.step
        if step >= self.run.plan.n_steps:
            return
        now = time.monotonic()
        trained = now - self.start - self.run.report.evaluated
        if step == self.compiled_step:
            self.first = self.first or trained
            self.compiled = trained
            self.computed = time.process_time()
            self.next_time = trained + MEASURED_SECONDS
        if trained < self.next_time:
            return

        # The mean since that step, as a run that was shortened may not be able to grow again.
        self.next_time = trained + self.interval
        is_first = not self.mean
        self.mean = (trained - self.compiled) / (step - self.compiled_step)
        if is_first:
            self._warn_if_busy(trained - self.compiled)
        if self.deadline == math.inf:
            return
        n_steps = self._length(now)
        if is_first:
            self._warn_if_short(n_steps)
            self._adapt(n_steps)
        if is_first or n_steps != self.run.plan.n_steps:
            self._change(n_steps)
            self.save.now()

    def _warn_if_busy(self, seconds: float) -> None:
        """Warn if other programs had the processors in the seconds since the first step."""
        computed = time.process_time() - self.computed
        percent = 100 * computed / seconds / available_cores()
        is_on_cpu = self.run.trainer.devices.names[0].startswith("CPU")
        # A quiet machine may have more processors than a step can use.
        if is_on_cpu and is_machine_busy() and percent < 60:
            logging.warning("the machine is busy: this run gets %.0f %% of its processors", percent)

    def _length(self, now: float) -> int:
        """Return the length of the run that ends at the deadline; the present length if it ends
        about then, or if the rate decays already and would rise in a longer run."""
        run = self.run
        plan = run.plan
        left = self.deadline - now
        step_seconds = self.mean
        if run.heldout:
            evaluation = self._evaluation_seconds(run.heldout)
            n_last = 2 if run.heldout.reader.shards.left_out else 1
            compiling = 0.0 if run.report.evaluated else self.first / 2
            left -= n_last * evaluation + compiling
            step_seconds += evaluation / plan.eval_steps
        self.missing = (self.shortest - run.step) * step_seconds - left

        n_steps = min(self.longest, run.step + max(1, int(left / step_seconds)))
        change = abs(plan.n_steps - n_steps) * step_seconds
        is_close = change <= self.interval / 2 + 0.1 * left
        rises = n_steps > plan.n_steps and run.trainer.schedule.is_decaying(run.step)
        return plan.n_steps if is_close or rises else n_steps

    def _evaluation_seconds(self, heldout: Heldout) -> float:
        """Return the expected time of an evaluation, without compiling its graph."""
        run = self.run
        measured = run.report.last_evaluation
        if run.report.evaluated > measured:  # not the first, which compiles the graph
            return measured
        # A step computes forward and twice as much backward, an evaluation always all words.
        share = 1.0 if run.trainer.options.sample_softmax else 1 / 3
        n_batches = heldout.n_predictions / run.plan.predictions_a_step
        return max(share * self.mean * n_batches, measured - self.first / 2)

    def _warn_if_short(self, n_steps: int) -> None:
        """Warn of a budget that is too short for `shortest` steps."""
        if n_steps < self.shortest:
            requested = (self.run.checkpoints.record.auto or {}).get("hours") or 0.0
            logging.warning(
                "--hours %g: too short: the run ends after %d steps; %.2g hours suffice for %d",
                requested, n_steps, requested + self.missing / 3600, self.shortest,
            )  # fmt: skip

    def _adapt(self, n_steps: int) -> None:
        """Adapt the options of `auto` to the length of the run."""
        run = self.run
        options = run.trainer.options
        n_tokens = options.n_train_tokens or 1
        changes = changes_for(options, n_steps * run.plan.predictions_a_step / n_tokens)
        if not changes or not run.checkpoints.record.auto:
            return

        run.trainer.change_options(changes)
        run.report.is_compiled = False
        self.compiled_step = run.step + 1
        self.next_time = math.inf
        stored = {**run.checkpoints.record.options, **changes}
        run.checkpoints.record = replace(run.checkpoints.record, options=stored)
        schema.write(run.checkpoints.folder.options_file, stored)
        values = ", ".join(f"{key}={value}" for key, value in changes.items())
        logging.info("auto: for this length %s; the next step compiles the graph again", values)

    def _change(self, n_steps: int) -> None:
        """Change the length of the run, also in the record of its next checkpoint."""
        before = self.run.plan.n_steps
        self.run.plan.n_steps = self.run.trainer.schedule.n_steps = n_steps
        checkpoints = self.run.checkpoints
        auto = {**(checkpoints.record.auto or {}), "n_steps": n_steps}
        checkpoints.record = replace(checkpoints.record, n_steps=n_steps, auto=auto)
        if n_steps != before:
            logging.info("%d steps instead of %d, to end on time", n_steps, before)
            self.run.log_expected()
