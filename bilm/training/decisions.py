"""Decisions between the steps of a run, by its spec, its progress and its timing: functions that
return values, which `bilm.training.run` applies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bilm.scoring.verdict import Comparison
from bilm.training.auto import changes_for, expected_ratio, recipe_for
from bilm.training.spec import RunProgress, RunSpec

MEASURED_SECONDS = 5.0  # least time in which the pace and the share of the processors are measured
USEFUL_STEPS = 100  # of the shortest run that learns anything
MIN_SHARE = 0.6  # of the processors: a quiet machine may have more than a step can use


@dataclass(frozen=True)
class Timing:
    """Seconds that this process has spent on a run until a moment, `now`, by a `clock` with the
    functions of the module `time`.

    Attributes:
        begun: when the run began; `saved`, when it was last saved, or began.
        processor_time: processor time of the process until `now`.
        compiling: of the first step, which compiles the graph; `n_steps`: number of others.
        trained: of these steps, with the saves between them; `computed`, their processor time.
        n_evaluations, last_evaluation: number of evaluations, and seconds of the last one.
    """

    begun: float = 0.0
    saved: float = 0.0
    now: float = 0.0
    processor_time: float = 0.0
    compiling: float = 0.0
    n_steps: int = 0
    trained: float = 0.0
    computed: float = 0.0
    n_evaluations: int = 0
    last_evaluation: float = 0.0

    @classmethod
    def start(cls, clock: Any) -> Timing:
        """Return the timing of a run that begins now."""
        now = clock.monotonic()
        return cls(now, now, now, clock.process_time())

    def after_step(self, clock: Any, compiles: bool) -> Timing:
        """Return the timing after a step, or after one that compiles the graph."""
        after = self._at(clock)
        seconds = after.now - self.now
        if compiles:
            return replace(after, compiling=self.compiling or seconds)
        return replace(
            after,
            n_steps=self.n_steps + 1,
            trained=self.trained + seconds,
            computed=self.computed + after.processor_time - self.processor_time,
        )

    def after_save(self, clock: Any) -> Timing:
        """Return the timing after a save, whose time the steps share."""
        after = self._at(clock)
        return replace(after, saved=after.now, trained=self.trained + after.now - self.now)

    def after_evaluation(self, clock: Any) -> Timing:
        """Return the timing after an evaluation."""
        after = self._at(clock)
        n_evaluations = self.n_evaluations + 1
        return replace(after, n_evaluations=n_evaluations, last_evaluation=after.now - self.now)

    def _at(self, clock: Any) -> Timing:
        # A clock that goes back, as in some virtual machines, measures nothing.
        now = max(self.now, clock.monotonic())
        return replace(self, now=now, processor_time=clock.process_time())

    @property
    def is_measured(self) -> bool:
        """Whether steps were measured for long enough to know their time."""
        return self.n_steps > 0 and self.trained >= MEASURED_SECONDS

    @property
    def step_seconds(self) -> float:
        """Mean time of a step; infinity before any was measured."""
        return self.trained / self.n_steps if self.n_steps else math.inf


class Pace(NamedTuple):
    """A change of the length of a run with a time budget."""

    n_steps: int  # length of the run
    changes: Mapping[str, Any]  # options that differ for this length
    n_useful_steps: int  # of the shortest useful run
    # Hours that the budget lacks for these steps; None if it suffices, or was too short before
    missing_hours: float | None = None


# --- saving and evaluating ---


def is_evaluation_due(spec: RunSpec, progress: RunProgress) -> bool:
    """Return whether an evaluation follows the last step."""
    is_planned = progress.step % spec.eval_steps == 0 or progress.step == spec.n_steps
    return spec.texts.heldout is not None and is_planned


def is_save_due(spec: RunSpec, progress: RunProgress, is_late: bool) -> bool:
    """Return whether a save follows the last step; `is_late`: see `is_save_late`."""
    at_interval = progress.step % spec.settings.checkpoint_steps == 0
    is_last = progress.step == spec.n_steps
    # Before an evaluation too: if that fails, no step is lost.
    return is_late or at_interval or is_last or is_evaluation_due(spec, progress)


def is_save_late(spec: RunSpec, timing: Timing, now: float) -> bool:
    """Return whether the last save is too long ago."""
    return now - timing.saved > 60 * spec.settings.checkpoint_minutes


def is_done(spec: RunSpec, progress: RunProgress) -> bool:
    """Return whether no step and no evaluation is left."""
    if progress.step == spec.n_steps:
        return spec.texts.heldout is None or progress.is_measured
    return progress.step > spec.n_steps


# --- the pace ---


def pace(spec: RunSpec, progress: RunProgress, timing: Timing) -> Pace | None:
    """Return the change with which a run with a time budget ends on time; None for no change. The
    first one is returned in any case, with the regularization and the rate of the length."""
    is_over = progress.step >= spec.n_steps
    if spec.deadline == math.inf or is_over or not timing.is_measured:
        return None

    # The time left for steps: the first change compiles again, and an evaluation ends the run.
    is_first = spec.auto is not None and spec.auto.n_steps is None
    left = spec.deadline - timing.now - last_evaluation_seconds(spec, timing)
    if is_first:
        left -= timing.compiling
    if spec.texts.heldout is not None and not timing.n_evaluations:
        left -= timing.compiling / 2

    step_seconds = timing.step_seconds + evaluation_seconds(spec, timing) / spec.eval_steps
    longest = spec.options.n_epochs * spec.epoch_steps
    shortest = min(USEFUL_STEPS, longest)
    n_steps = min(longest, progress.step + max(1, int(left / step_seconds)))
    missing = (shortest - progress.step) * step_seconds - left

    # The length stays if the run ends about on time, or if its rate, which decays already, would
    # rise in a longer run.
    change = abs(spec.n_steps - n_steps) * step_seconds
    tolerance = max(MEASURED_SECONDS, 0.02 * (spec.deadline - timing.begun)) / 2
    is_close = change <= tolerance + 0.1 * max(0.0, left)
    rises = n_steps > spec.n_steps and spec.schedule.is_decaying(progress.step)
    if is_close or rises:
        n_steps = spec.n_steps

    if is_first:
        changes = changes_for(spec.options, spec.n_epochs(n_steps))
        missing_hours = missing / 3600 if n_steps < shortest else None
        return Pace(n_steps, changes, shortest, missing_hours)
    return None if n_steps == spec.n_steps else Pace(n_steps, {}, shortest)


def run_hours(spec: RunSpec, timing: Timing, n_steps: int) -> float | None:
    """Return the expected time of a run of so many steps; None before a step was measured."""
    if not timing.n_steps:
        return None
    compiling = 1.5 * timing.compiling  # the graphs of a step and of an evaluation
    n_before = (n_steps - 1) // spec.eval_steps  # evaluations before the last one
    evaluating = n_before * evaluation_seconds(spec, timing)
    evaluating += last_evaluation_seconds(spec, timing)
    return (compiling + n_steps * timing.step_seconds + evaluating) / 3600


def last_evaluation_seconds(spec: RunSpec, timing: Timing) -> float:
    """Return the expected time of the evaluation at the end of the run."""
    heldout = spec.texts.heldout
    # The text is measured a second time with the sentences that were left out.
    n_times = 2 if heldout and heldout.shards.left_out else 1
    return n_times * evaluation_seconds(spec, timing)


def evaluation_seconds(spec: RunSpec, timing: Timing) -> float:
    """Return the expected time of an evaluation without compiling its graph; 0 for no text."""
    heldout = spec.texts.heldout
    if heldout is None:
        return 0.0
    if timing.n_evaluations > 1:  # the first compiles the graph
        return timing.last_evaluation
    # A step computes forward and twice as much backward, an evaluation always all words.
    share = 1.0 if spec.is_sampled else 1 / 3
    n_batches = heldout.n_predictions / spec.predictions_a_step
    return max(share * timing.step_seconds * n_batches, timing.last_evaluation - timing.compiling)


def processor_share(timing: Timing, n_cores: int) -> float | None:
    """Return the share of its processors that a run got so far; None if it is enough."""
    share = timing.computed / timing.trained / n_cores
    return share if share < MIN_SHARE else None


# --- what to expect ---


def comparison(spec: RunSpec, step: int, timing: Timing | None = None) -> Comparison | None:
    """Return what the model after `step` steps is compared with; None without held-out text."""
    if spec.texts.heldout is None:
        return None
    compared = spec.texts.heldout.compared.replace(n_epochs=spec.n_epochs(step) or None)
    if spec.auto is None:
        return compared
    n_tokens = spec.options.n_train_tokens or 1
    n_useful_epochs = recipe_for(n_tokens).n_epochs
    n_words = spec.texts.vocab.size
    ratio = expected_ratio(spec.n_steps * spec.predictions_a_step, n_tokens, n_words)
    of_useful = expected_ratio(n_useful_epochs * n_tokens, n_tokens, n_words)
    n_useful_steps = n_useful_epochs * spec.epoch_steps
    hours = timing and run_hours(spec, timing, n_useful_steps)
    return compared.replace(
        n_useful=n_useful_epochs, hours=hours, ratio=ratio, gain=max(0.0, 1 - of_useful / ratio)
    )
