"""Progress of a run: a bar on the terminal, lines in the log, rows of `history.csv`."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import Perplexity
from bilm.training.history import History
from bilm.training.plan import Plan
from bilm.training.step import StepResult

RECORD_SECONDS = 5.0  # between rows of the history, and new figures of the progress bar
# Variables that Jupyter, and a kernel that another program has started, set for their commands.
JUPYTER, PLOTS = "JPY_PARENT_PID", "MPLBACKEND"
BAR_WIDTH = 20  # characters, in a notebook
LINES = 5  # of a run, besides evaluations
LINE_SECONDS = (10.0, 600.0)  # fewest and most between two lines


class TrainResult(NamedTuple):
    """How a run ended: its last step, whether it is finished, and its last held-out perplexity."""

    step: int
    finished: bool
    heldout: Perplexity | None


@contextmanager
def progress_bar(n_steps: int) -> Iterator[Callable[..., None] | None]:
    """Yield a function that updates a bar on the terminal, above which the log continues, or in a
    notebook, where logs are quiet by default; None if there is neither, or if the log is quiet."""
    is_quiet = logging.get_verbosity() < logging.INFO
    if "ipykernel" in sys.modules and logging.get_verbosity() >= logging.WARNING:
        yield _notebook_bar(n_steps)
        return
    # The terminal of a notebook's command, such as `!bilm train`, keeps each state of a bar.
    in_notebook = JUPYTER in os.environ or "inline" in os.environ.get(PLOTS, "")
    if is_quiet or in_notebook or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    handler = logging.get_absl_handler().python_handler
    columns = BarColumn(bar_width=None), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), expand=True) as bar:
        before = handler.setStream(sys.stderr)  # rich's, which prints above the bar
        try:
            yield partial(bar.update, bar.add_task("compiling the first step", total=n_steps))
        finally:
            handler.setStream(before)


def _notebook_bar(n_steps: int) -> Callable[..., None]:
    """Return a function that updates a bar in the output of a notebook's cell."""
    from IPython.display import display

    def drawn(completed: int, total: int, description: str) -> dict[str, str]:
        done = BAR_WIDTH * completed // total
        return {"text/plain": f"[{'=' * done}{' ' * (BAR_WIDTH - done)}] {description}"}

    shown = display(drawn(0, n_steps, "compiling the first step"), raw=True, display_id=True)

    def update(completed: int, total: int = n_steps, description: str = "") -> None:
        if description:
            shown.update(drawn(completed, total, description), raw=True)

    return update


class RunReport:
    """Reports the progress of a run, as a bar or as lines, and the result of each evaluation.

    Args:
        log_steps: steps between reports; None for few lines, and rows every few seconds.
        history: writer of `history.csv`; None to write none.
        is_measured: whether an evaluation, which is a line itself, follows the last step.
    Attributes: `bar`, from `progress_bar`; `evaluated`, `last_evaluation`, seconds of all
        evaluations and of the last one; `is_compiled`, False before a step that compiles the graph.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        log_steps: int | None = None,
        history: History | None = None,
        is_measured: bool = False,
    ):
        self.plan = plan
        self.log_steps = log_steps
        self.is_measured = is_measured
        self.history = history or History(None)
        # The sampled loss is much lower than the full one, so it is never reported as a perplexity.
        self.loss_name = "sampled loss" if options.sample_softmax else "full-softmax loss"
        self.directions = options.model.directions
        self.bar: Callable[..., None] | None = None
        self.evaluated = 0.0
        self.last_evaluation = 0.0

        # Losses since the last report.
        self._rate = 0.0  # of the last step
        self._n_added = 0  # steps
        self._total: Any = 0.0  # sum of the losses of these steps, on the device
        # Speed since the last report.
        self._since = time.monotonic()
        self._n_timed = 0  # steps
        self._step_seconds = math.inf
        self.is_compiled = False
        # The last line, and the last figures and held-out perplexity in words.
        self._line_step = 0
        self._line_time = 0.0
        self._figures = self._perplexity = ""

    def add(self, step: int, result: StepResult) -> None:
        """Add the result of step `step`, counted from 0; report if a report is due.

        Losses are copied from the device only for a report, because copying them after each step
        would make every step wait for the GPU.
        """
        self._rate = result.learning_rate
        self._total += tf.cast(tf.reduce_mean(result.losses, axis=0), tf.float64)
        self._n_added += 1
        self._n_timed += 1

        done = step + 1
        is_due = done == self.plan.n_steps
        if self.log_steps:
            is_due |= done % self.log_steps == 0
        else:
            is_due |= time.monotonic() - self._since >= RECORD_SECONDS

        if is_due or not self.is_compiled:
            self._report(done)
        elif self.bar is not None:
            self.bar(completed=done)
        if is_due:
            self._record(done)
        elif not self.is_compiled:  # its time includes compiling the graph
            self._restart_timing()
        self.is_compiled = True

    def _report(self, done: int) -> None:
        """Update the bar, or log a line if one is due."""
        speed = f", {self._speed():,.0f} tokens/s" if self.is_compiled else ""
        self._figures = f"{self._place(done)}: {self.loss_name} {self._means().mean():.3f}{speed}"
        self._update_bar(done)
        if self.bar is None and self._is_line_due(done):
            self._log(done, f"{self._figures}, learning rate {self._rate:.3g}{self._perplexity}")

    def _update_bar(self, done: int) -> None:
        if self.bar is not None:
            shown = self._figures + self._perplexity
            self.bar(completed=done, total=self.plan.n_steps, description=shown)

    def _is_line_due(self, done: int) -> bool:
        if self.log_steps or not self.is_compiled:
            return True
        if done == self.plan.n_steps:
            return not self.is_measured
        waited = time.monotonic() - self._line_time
        fewest, most = LINE_SECONDS
        is_far = done >= self._line_step + self.plan.n_steps / LINES
        return waited >= (fewest if is_far else most)

    def heldout(self, step: int, perplexity: Perplexity, compared: str, is_best: bool) -> None:
        """Report an evaluation after `step` steps; `compared`: a `Comparison` in words."""
        self._perplexity = f"; held-out perplexity at step {step:,}: {perplexity}"
        best = ", the best so far" if is_best else ""
        measured = f"held-out perplexity {perplexity} (running text{best}); {compared}"
        self._log(step, f"{self._place(step)}: {measured}")
        self._update_bar(step)

        values = {f"heldout_{d}": value for d, value in perplexity.directions.items()}
        values["heldout_perplexity"] = perplexity.mean
        self.history.add(step, epoch=self._epoch(step), **values)

    def flush(self, step: int) -> None:
        """Write all pending rows, so that the history includes the step of the checkpoint that is
        saved next. Raises: OSError."""
        if self._n_added:
            self._record(step)
        self.history.write()

    def hours(self, n_steps: int) -> float | None:
        """Return the time of a number of steps and their evaluations; None if it is unknown."""
        evaluation = self.last_evaluation / self.plan.eval_steps
        hours = n_steps * (self._step_seconds + evaluation) / 3600
        return hours if hours < math.inf else None

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Exclude the time of the block from the speed."""
        start = time.monotonic()
        yield
        self.last_evaluation = time.monotonic() - start
        self.evaluated += self.last_evaluation
        self._since += self.last_evaluation

    def _record(self, done: int) -> None:
        """Add the row of the steps since the last report to the history."""
        means = zip(self.directions, self._means(), strict=True)
        losses = {f"loss_{direction}": float(mean) for direction, mean in means}
        self.history.add(
            done,
            epoch=self._epoch(done),
            learning_rate=self._rate,
            tokens_per_s=self._speed(),
            **losses,
        )
        self._total = 0.0
        self._n_added = 0
        self._restart_timing()

    def _restart_timing(self) -> None:
        self._n_timed = 0
        self._since = time.monotonic()

    def _means(self) -> np.ndarray:
        """Return the mean loss of each direction since the last report: float64 (directions,)."""
        return self._total.numpy() / self._n_added

    def _speed(self) -> float:
        """Return tokens per second since the last report."""
        if self._n_timed:
            self._step_seconds = max(time.monotonic() - self._since, 1e-9) / self._n_timed
        return self.plan.predictions_a_step / self._step_seconds

    def _epoch(self, done: int) -> int:
        return (done - 1) // self.plan.epoch_steps + 1

    def _place(self, done: int) -> str:
        place = f"epoch {self._epoch(done)}, step {done:,} of {self.plan.n_steps:,}"
        seconds = (self.plan.n_steps - done) * self._step_seconds
        if 0 < seconds < math.inf:
            place += f", {timedelta(seconds=int(seconds))} left"
        return place

    def _log(self, done: int, line: str) -> None:
        self._line_step = done
        self._line_time = time.monotonic()
        logging.info("%s", line)
