"""Progress of a run: a bar on the terminal, lines in the log, rows of `history.csv`."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.scoring.perplexity import Perplexity
from bilm.training.decisions import Timing
from bilm.training.history import History
from bilm.training.spec import RunSpec
from bilm.training.step import StepResult

RECORD_SECONDS = 5.0  # between rows of the history, and new figures of the progress bar
# Variables that Jupyter, and a kernel that another program has started, set for their commands.
JUPYTER, PLOTS = "JPY_PARENT_PID", "MPLBACKEND"
BAR_WIDTH = 20  # characters, in a notebook
LINES = 5  # of a run, besides evaluations
LINE_SECONDS = (10.0, 600.0)  # fewest and most between two lines


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
    """Reports the progress of a run, as a `bar` from `progress_bar` or as lines, and the result of
    each evaluation; `history` may have no file."""

    def __init__(self, spec: RunSpec, history: History):
        self.history = history
        # The sampled loss is much lower than the full one, so it is never reported as a perplexity.
        self.loss_name = "sampled loss" if spec.is_sampled else "full-softmax loss"
        self.directions = spec.options.model.directions
        self.bar: Callable[..., None] | None = None

        # Losses since the last report.
        self._rate = 0.0  # of the last step
        self._n_added = 0  # steps
        self._total: Any = 0.0  # sum of the losses of these steps, on the device
        # The run and its timing after the last step, the timing at the last report, and the time of
        # a step between them.
        self._spec = spec
        self._timing = self._reported = Timing()
        self._step_seconds = math.inf
        # The last line, and the last figures and held-out perplexity in words.
        self._line_step = 0
        self._line_time = 0.0
        self._figures = self._perplexity = ""

    def add(
        self, spec: RunSpec, done: int, result: StepResult, timing: Timing, compiles: bool
    ) -> None:
        """Add the result of the last of `done` steps, which compiled the graph or not; report if a
        report is due. Only then are losses copied from the device: every step would wait for it."""
        self._rate = result.learning_rate
        self._total += tf.cast(tf.reduce_mean(result.losses, axis=0), tf.float64)
        self._n_added += 1
        self._spec = spec
        self._timing = timing
        n_timed = timing.n_steps - self._reported.n_steps
        if n_timed:
            self._step_seconds = max(timing.trained - self._reported.trained, 1e-9) / n_timed

        log_steps = self._spec.settings.log_steps
        is_due = done == self._spec.n_steps
        if log_steps:
            is_due |= done % log_steps == 0
        else:
            is_due |= timing.now - self._reported.now >= RECORD_SECONDS

        if is_due or compiles:
            self._figures = f"{self._place(done)}: {self.loss_name} {self._means().mean():.3f}"
            if self._step_seconds < math.inf:
                speed = self._spec.predictions_a_step / self._step_seconds
                self._figures += f", {speed:,.0f} tokens/s"
            self._update_bar(done)
            if self.bar is None and (compiles or self._is_line_due(done)):
                rate = f", learning rate {self._rate:.3g}"
                self._log(done, f"{self._figures}{rate}{self._perplexity}")
        elif self.bar is not None:
            self.bar(completed=done)
        if is_due:
            self._record(done)

    def _update_bar(self, done: int) -> None:
        if self.bar is not None:
            shown = self._figures + self._perplexity
            self.bar(completed=done, total=self._spec.n_steps, description=shown)

    def _is_line_due(self, done: int) -> bool:
        if self._spec.settings.log_steps:
            return True
        if done == self._spec.n_steps:
            # With held-out text, an evaluation follows, which is a line itself.
            return self._spec.texts.heldout is None
        waited = self._timing.now - self._line_time
        fewest, most = LINE_SECONDS
        is_far = done >= self._line_step + self._spec.n_steps / LINES
        return waited >= (fewest if is_far else most)

    def heldout(
        self, spec: RunSpec, step: int, perplexity: Perplexity, compared: str, is_best: bool
    ) -> None:
        """Report an evaluation after `step` steps; `compared`: a `Comparison` in words."""
        self._spec = spec
        self._perplexity = f"; held-out perplexity at step {step:,}: {perplexity}"
        best = ", the best so far" if is_best else ""
        measured = f"held-out perplexity {perplexity} (running text{best}); {compared}"
        self._log(step, f"{self._place(step)}: {measured}")
        self._update_bar(step)

        values = {f"heldout_{d}": value for d, value in perplexity.directions.items()}
        values["heldout_perplexity"] = perplexity.mean
        self.history.add(step, epoch=self._epoch(step), **values)

    def flush(self, step: int) -> None:
        """Write all rows, so that they include the step of the next checkpoint. Raises: OSError."""
        if self._n_added:
            self._record(step)
        self.history.write()

    def _record(self, done: int) -> None:
        """Add the row of the steps since the last report to the history."""
        means = zip(self.directions, self._means(), strict=True)
        values = {f"loss_{direction}": float(mean) for direction, mean in means}
        if self._step_seconds < math.inf:
            values["tokens_per_s"] = self._spec.predictions_a_step / self._step_seconds
        self.history.add(done, epoch=self._epoch(done), learning_rate=self._rate, **values)
        self._total = 0.0
        self._n_added = 0
        self._reported = self._timing

    def _means(self) -> np.ndarray:
        """Return the mean loss of each direction since the last report: float64 (directions,)."""
        return self._total.numpy() / self._n_added

    def _epoch(self, done: int) -> int:
        return (done - 1) // self._spec.epoch_steps + 1

    def _place(self, done: int) -> str:
        place = f"epoch {self._epoch(done)}, step {done:,} of {self._spec.n_steps:,}"
        seconds = (self._spec.n_steps - done) * self._step_seconds
        if 0 < seconds < math.inf:
            place += f", {timedelta(seconds=int(seconds))} left"
        return place

    def _log(self, done: int, line: str) -> None:
        self._line_step = done
        self._line_time = self._timing.now
        logging.info("%s", line)
