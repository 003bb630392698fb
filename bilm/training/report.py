"""How a run is doing: on the log for a person, as scalars for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from bilm.evaluation import Perplexity
from bilm.options import RunOptions
from bilm.training.plan import Plan
from bilm.training.step import StepResult

LOG_SECONDS = 5.0
SMOOTHING = 0.7  # of the rate, from which the time left is estimated
MUCH = 0.05  # of a run's time, for evaluations


class TrainResult(NamedTuple):
    """How a run ended: its last step, whether it is finished, and its last held-out perplexity."""

    step: int
    finished: bool
    heldout: Perplexity | None


class RunReport:
    """Says every few seconds where a run is, and what an evaluation found.

    Args:
        plan: steps in an epoch and in the run, predictions per step.
        options: of the run.
        log_dir: where TensorBoard's files go; None writes none.
        log_steps: steps between reports; None for one every few seconds.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        log_dir: str | Path | None,
        log_steps: int | None = None,
    ):
        self.predictions_a_step, self.log_steps = plan.predictions_a_step, log_steps
        self.epoch_steps, self.n_steps = plan.epoch_steps, plan.n_steps
        # The sampled loss is well below the full one, and is never called a perplexity.
        self.loss_name = "sampled loss" if options.sample_softmax else "full-softmax loss"
        self.directions = options.model.directions
        self.folder = log_dir
        with self._writing():
            self.writer = (
                tf.summary.create_noop_writer()
                if log_dir is None
                else tf.summary.create_file_writer(str(log_dir))
            )
        self.total, self.n_added = 0.0, 0  # of the losses since the last report, on the device
        self.start = self.since = time.monotonic()
        self.rate, self.paused_s, self.warned = None, 0.0, False

    def add(self, step: int, result: StepResult) -> None:
        """Take the result of step `step`, counted from 0; report if it is time to.

        Only then are the losses fetched: to fetch them at each step would have it wait for a GPU.
        """
        self.total += tf.cast(tf.reduce_mean(result.losses, axis=0), tf.float64)
        self.n_added += 1
        seconds, done = time.monotonic() - self.since, step + 1
        first = self.rate is None
        due = done % self.log_steps == 0 if self.log_steps else seconds >= LOG_SECONDS
        if not (first or due or done == self.n_steps):
            return
        means = self.total.numpy() / self.n_added
        rate = self.n_added * self.predictions_a_step / (time.monotonic() - self.since)
        losses = ", ".join(f"{d} {m:.3f}" for d, m in zip(self.directions, means, strict=True))
        epoch = step // self.epoch_steps + 1
        place = f"epoch {epoch}, step {done:,} of {self.n_steps:,}"
        if first:  # the step that compiles: its rate says nothing
            logging.info("%s, %s %s (not held out)", place, self.loss_name, losses)
            self.rate = 0.0
        else:
            self.rate = SMOOTHING * self.rate + (1 - SMOOTHING) * rate if self.rate else rate
            left = _clock((self.n_steps - done) * self.predictions_a_step / self.rate)
            speed = f"{rate:,.0f} tokens/s, {left} left, learning rate {result.learning_rate:.3g}"
            logging.info("%s, %s, %s %s (not held out)", place, speed, self.loss_name, losses)
        scalars = {
            "train/global_norm": result.global_norm,
            "train/learning_rate": result.learning_rate,
            "train/tokens_per_s": rate,
        }
        for direction, mean in zip(self.directions, means, strict=True):
            scalars[f"train/{self.loss_name.replace(' ', '_')}_{direction}"] = mean
        self._write(done, scalars)
        self.total, self.n_added, self.since = 0.0, 0, time.monotonic()

    def heldout(self, step: int, perplexity: Perplexity, whole: bool = True) -> None:
        """Report an evaluation of the whole held-out text, or of a part, after `step` steps."""
        # Where rows never start afresh in training, this may be far above what it could be.
        logging.info(
            "step %s: held-out perplexity from zero state%s: %s",
            f"{step:,}", "" if whole else ", part of the text", perplexity,
        )  # fmt: skip
        tag = "heldout" if whole else "heldout_part"
        scalars = {f"{tag}/perplexity_{d}": p for d, p in perplexity.directions.items()}
        self._write(step, scalars | {f"{tag}/perplexity": perplexity.mean})

    def flush(self) -> None:
        """Write what is held back, so that the scalars reach as far as a checkpoint does.

        Raises: OSError if the disk does not take them.
        """
        with self._writing():
            self.writer.flush()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time that the block takes out of the rate."""
        start = time.monotonic()
        yield
        seconds = time.monotonic() - start
        self.since += seconds
        self.paused_s += seconds

    def warn_of_evaluations(self, whole: bool) -> None:
        """Say once if evaluations take much of the time; `whole`: of the whole text."""
        share = self.paused_s / (time.monotonic() - self.start)
        if share > MUCH and not self.warned:
            self.warned = True
            how = " or measure a part of the text until the end (--heldout_sentences)"
            logging.info(
                "evaluations have taken %.0f s, %.0f %% of the time so far; to spend less, "
                "evaluate less often (--eval_steps)%s",
                self.paused_s, 100 * share, how if whole else "",
            )  # fmt: skip

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            raise OSError(f"{self.folder}: cannot be written: {error.message}") from error

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        # tf.summary.scalar is the package tensorboard's; what it writes is this.
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        with self._writing(), self.writer.as_default(step):
            for tag, value in scalars.items():
                tf.summary.write(tag, tf.cast(value, tf.float32), metadata=metadata)


def _clock(seconds: float) -> str:
    return f"{int(seconds // 3600)}:{int(seconds // 60) % 60:02d}:{int(seconds) % 60:02d}"
