"""Progress of a run: lines in the log, scalars for TensorBoard, rows of `history.csv`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import Perplexity
from bilm.training.history import History
from bilm.training.plan import Plan
from bilm.training.step import StepResult

LOG_SECONDS = 5.0


class TrainResult(NamedTuple):
    """How a run ended: its last step, whether it is finished, and its last held-out perplexity."""

    step: int
    finished: bool
    heldout: Perplexity | None


class RunReport:
    """Reports the progress of a run every few seconds, and the result of each evaluation.

    Args:
        plan: steps in an epoch and in the run, predictions per step.
        options: options of the run.
        log_dir: folder for TensorBoard files; None to write none.
        log_steps: steps between reports; None for one every few seconds.
        history: writer of `history.csv`; None to write none.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        log_dir: str | Path | None,
        log_steps: int | None = None,
        history: History | None = None,
    ):
        self.plan, self.log_steps = plan, log_steps
        self.history = history or History(None)
        # The sampled loss is much lower than the full one, so it is never reported as a perplexity.
        self.loss_name = "sampled loss" if options.sample_softmax else "full-softmax loss"
        self.directions = options.model.directions
        create = tf.summary.create_file_writer
        self.writer = create(str(log_dir)) if log_dir else tf.summary.create_noop_writer()
        self._last: StepResult | None = None
        self._n_added = 0  # steps since the last report
        self._total: Any = 0.0  # sum of the losses of these steps, on the device
        self._n_timed = 0  # steps since `_since`
        self._since = time.monotonic()
        self._is_compiled = False

    def add(self, step: int, result: StepResult) -> None:
        """Add the result of step `step`, counted from 0; report if a report is due.

        Losses are copied from the device only for a report, because copying them after each step
        would make every step wait for the GPU.
        """
        self._last = result
        self._total += tf.cast(tf.reduce_mean(result.losses, axis=0), tf.float64)
        self._n_added += 1
        self._n_timed += 1
        done, seconds = step + 1, time.monotonic() - self._since
        due = done % self.log_steps == 0 if self.log_steps else seconds >= LOG_SECONDS
        # The first step includes compiling the graph, so its speed is not reported.
        if not self._is_compiled:
            logging.info("%s, %s (not held out)", self._place(done), self._losses())
            self._is_compiled = True
            if not (due or done == self.plan.n_steps):
                self._n_timed, self._since = 0, time.monotonic()
                return
        elif due or done == self.plan.n_steps:
            speed = self._tokens_per_s()
            left = (self.plan.n_steps - done) * self.plan.predictions_a_step / speed
            logging.info(
                "%s, %s tokens/s, %s left, learning rate %.3g, %s (not held out)",
                self._place(done), f"{speed:,.0f}", timedelta(seconds=int(left)),
                result.learning_rate, self._losses(),
            )  # fmt: skip
        else:
            return
        self._record(done, result)

    def heldout(self, step: int, perplexity: Perplexity, compared: str, whole: bool = True) -> None:
        """Report an evaluation of the whole held-out text, or of a part, after `step` steps;
        `compared`: see `Heldout`."""
        # If training never resets rows, perplexity from zero state may be much higher than from
        # carried state.
        logging.info(
            "step %s: held-out perplexity from zero state%s: %s (%s)",
            f"{step:,}", "" if whole else ", part of the text", perplexity, compared,
        )  # fmt: skip
        tag = "heldout" if whole else "heldout_part"
        scalars = {f"{tag}/perplexity_{d}": p for d, p in perplexity.directions.items()}
        self._write(step, scalars | {f"{tag}/perplexity": perplexity.mean})
        directions = {f"heldout_{d}": p for d, p in perplexity.directions.items()}
        self.history.add(
            step, epoch=self._epoch(step), **directions,
            heldout_perplexity=perplexity.mean, heldout_text="whole" if whole else "part",
        )  # fmt: skip

    def flush(self, step: int) -> None:
        """Write all pending results, so that the curves include the step of the checkpoint that is
        saved next.

        Raises: OSError if the files cannot be written.
        """
        if self._n_added and self._last is not None:
            self._record(step, self._last)
        self.writer.flush()
        self.history.write()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Exclude the time of the block from the speed."""
        start = time.monotonic()
        yield
        self._since += time.monotonic() - start

    def _record(self, done: int, result: StepResult) -> None:
        """Write the scalars and the row of the steps since the last report."""
        speed = self._tokens_per_s()
        scalars = {
            "train/global_norm": float(result.global_norm),
            "train/learning_rate": result.learning_rate,
            "train/tokens_per_s": speed,
        }
        means = {d: float(mean) for d, mean in zip(self.directions, self._means(), strict=True)}
        loss = f"train/{self.loss_name.replace(' ', '_')}"
        self._write(done, scalars | {f"{loss}_{d}": mean for d, mean in means.items()})
        self.history.add(
            done, epoch=self._epoch(done), learning_rate=result.learning_rate, tokens_per_s=speed,
            **{f"loss_{d}": mean for d, mean in means.items()},
        )  # fmt: skip
        self._total, self._n_added = 0.0, 0
        self._n_timed, self._since = 0, time.monotonic()

    def _means(self) -> np.ndarray:
        return self._total.numpy() / self._n_added

    def _losses(self) -> str:
        means = zip(self.directions, self._means(), strict=True)
        return f"{self.loss_name} " + ", ".join(f"{d} {m:.3f}" for d, m in means)

    def _tokens_per_s(self) -> float:
        seconds = max(time.monotonic() - self._since, 1e-9)
        return self._n_timed * self.plan.predictions_a_step / seconds

    def _epoch(self, done: int) -> int:
        return (done - 1) // self.plan.epoch_steps + 1

    def _place(self, done: int) -> str:
        return f"epoch {self._epoch(done)}, step {done:,} of {self.plan.n_steps:,}"

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        # `tf.summary.scalar` requires the package tensorboard and stores tensors, which
        # TensorBoard's `EventAccumulator.Scalars` does not return.
        summary = tf.compat.v1.Summary()
        for tag, value in scalars.items():
            summary.value.add(tag=tag, simple_value=value)
        with self.writer.as_default(step):
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)
