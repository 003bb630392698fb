"""A training run: data, steps, evaluation, checkpoints, from the first step to the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bilm.data.shards import resolve_shards
from bilm.data.stream import check_shards, describe_shards
from bilm.errors import DataError
from bilm.evaluation import Evaluator, Perplexity
from bilm.files import expanded
from bilm.language_model import BiLM
from bilm.memory import explaining_memory
from bilm.options import RunOptions
from bilm.training import agreement
from bilm.training import plan as plans
from bilm.training.checkpoints import RunCheckpoints, Saving
from bilm.training.devices import Devices
from bilm.training.hosts import Alone, Hosts
from bilm.training.input import TrainingText
from bilm.training.preparation import (
    Reader,
    checked_seed,
    completed,
    heldout_readers,
    load_vocabulary,
    share_rows,
)
from bilm.training.report import RunReport, TrainResult
from bilm.training.run_folder import RunFolder
from bilm.training.signals import stop_on_signal
from bilm.training.step import Trainer

SMALLER = "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary"


class TrainingRun:
    """A run of training in a folder; one that is there and unfinished is continued.

    Args:
        options: of the run. `n_train_tokens` None counts the corpus; `n_tokens_vocab` is taken
            from the vocabulary.
        vocab_file: one word per line by falling frequency, `<S> </S> <UNK>` among them.
        train_prefix: glob of the text shards, plain or gzip, one tokenized sentence per line.
        save_dir: where checkpoints, options and vocabulary go.
        heldout_prefix: glob of the text to measure on; None measures nothing.
        strategy: from `make_strategy`; None takes all GPUs, or the CPU.
        hosts: the worker processes that share the run; None for this one alone.
        n_steps: total steps of the run; None derives them from `n_epochs`.
        eval_steps: steps between evaluations; None for one per epoch.
        heldout_sentences: how many held-out sentences, spread over the text, an evaluation before
            the end measures at most; None for all. The last evaluation measures the whole text.
        seed: determines the initial weights, the order of the text, dropout and negatives.
        resume: "auto" continues a run if there is one, "never" refuses a folder that holds a run,
            "must" refuses one without.
        saving: when to save and how many checkpoints to keep. A run also saves before each
            evaluation and at its end.
        log_steps: steps between reports; None for one every few seconds.
        log_dir: where TensorBoard's files go; None for `logs` in `save_dir`.
        precision: of the operands of products, see `BiLM`; a run may continue in the other.
        initialize: assigns the first weights of a new run; not called for one that is continued.
        on_bad_utf8: "error", or "replace" to read bytes that are not UTF-8 as U+FFFD.
    Raises: BilmError, here and in `train`, for input that cannot be used, for a folder that
        another process trains in, for a disk that takes no checkpoint, for memory that does not
        suffice, and for a loss or gradient that is not finite.

    Example:
        options = load_run_options("small")
        result = bilm.TrainingRun(options, "vocab.txt", "corpus/*.txt", "run").train()
    """

    def __init__(
        self,
        options: RunOptions,
        vocab_file: str | Path,
        train_prefix: str,
        save_dir: str | Path,
        heldout_prefix: str | None = None,
        strategy: tf.distribute.Strategy | None = None,
        n_steps: int | None = None,
        eval_steps: int | None = None,
        seed: int = 0,
        resume: str = "auto",
        saving: Saving = Saving(),  # noqa: B008 (it cannot be changed)
        log_steps: int | None = None,
        precision: str = "float32",
        initialize: Callable[[BiLM], None] | None = None,
        on_bad_utf8: str = "error",
        log_dir: str | Path | None = None,
        heldout_sentences: int | None = None,
        hosts: Hosts | Alone | None = None,
    ):
        paths = vocab_file, train_prefix, heldout_prefix, log_dir
        self.vocab_file, self.train_prefix, self.heldout_prefix, log_dir = map(expanded, paths)
        self.seed = checked_seed(seed)
        self.options, self.resume, self.saving = options, resume, saving
        self.n_steps, self.eval_steps, self.log_steps = n_steps, eval_steps, log_steps
        self.precision, self.initialize, self.on_bad_utf8 = precision, initialize, on_bad_utf8
        self.heldout_sentences = heldout_sentences
        RunFolder(save_dir).check_usable()  # before TensorFlow takes the devices
        self.devices = Devices(strategy, hosts)
        self.hosts = self.devices.hosts
        self.folder = RunFolder(save_dir, writes=self.devices.is_chief)
        self.log_dir = log_dir or self.folder.logs
        self.vocab = load_vocabulary(self.vocab_file, options)
        self._check_run()

    def train(self) -> TrainResult:
        """Take the steps that are left, from the last whole checkpoint to the end of the run."""
        self.shards = resolve_shards(self.train_prefix, self.on_bad_utf8)
        agreement.check_alike(self)
        self.heldout, self.heldout_part = heldout_readers(
            self.heldout_prefix, self.shards, self.vocab, self.options, self.heldout_sentences
        )
        with self.folder.locked(), explaining_memory(str(self.folder), SMALLER):
            self._check_run()  # another process may have trained here since
            self._prepare()
            if self._is_over():
                return self._end_at_once()
            self._write_inputs()
            text = TrainingText(self.run_options, self.vocab, self.shards, self.seed)
            # Before this, a signal ends the process at once: there is nothing to save yet.
            with stop_on_signal() as stop, closing(text):
                self.hosts.gather("start", None)  # a signal to any worker now stops and saves all
                self._tell_start()
                result = self._loop(stop, text)
            if result.finished:
                self._tell_end()
            else:
                how = " with --resume=auto" if self.resume == "never" else ""
                logging.info("the same command%s continues the run", how)
            return result

    def _check_run(self) -> None:
        if self.hosts.is_chief:  # which may have begun to write when another worker looks
            self.folder.check_resume(self.resume)
            self.folder.check_same_run(self.options, self.vocab_file)

    def _prepare(self) -> None:
        """Count the text, make model and checkpoints, and restore the last whole one."""
        options = agreement.agreed_options(
            self.hosts, lambda: completed(self.options, self.vocab, self.shards, self.folder)
        )
        # Stored as requested: a continued run may have a vocabulary that allows sampling.
        self.stored = options.replace(sample_softmax=self.options.sample_softmax)
        self.saved = agreement.agreed_checkpoint(self.hosts, self.folder)
        found = agreement.agreed_measurement(self.hosts, self.folder, self.heldout_part)
        self.measured, is_other_text = found
        if self.saved:
            check_shards(self.shards, self.saved.shards or describe_shards(self.shards))
            if self.hosts.is_chief:
                self.folder.log_changes(self.stored)
        n_replicas, n_words = self.devices.n_replicas, self.vocab.size
        requested = self.saved.batch_size if self.saved else options.batch_size
        self.run_options = options = share_rows(options, self.saved, n_replicas)
        self.stored = self.stored.replace(batch_size=options.batch_size)
        self.plan = plans.Plan(options, n_replicas, self.n_steps, self.eval_steps)
        plans.tell(self.plan, options, n_words, self.devices)
        keras.utils.set_random_seed(self.seed)  # here: the program may have drawn from it since
        self.trainer = Trainer(
            options, n_words, self.devices, self.seed, self.precision, self.plan.n_steps
        )
        shards, keep = describe_shards(self.shards), self.saving.keep
        self.checkpoints = RunCheckpoints(
            self.trainer, self.folder, self.plan.n_steps, shards, requested, keep
        )
        self.step, self.position = 0, None
        if self.saved is not None:
            self.checkpoints.restore(self.saved, compares=not is_other_text)
            self.step, self.position = self.saved.step, self.saved.position

    def _is_over(self) -> bool:
        """Whether no step and no evaluation is left."""
        measured_step, _ = (self.heldout and self.measured) or (None, None)
        at_end = self.step == self.plan.n_steps
        return self.step > self.plan.n_steps or (
            at_end and (not self.heldout or measured_step == self.step)
        )

    def _end_at_once(self) -> TrainResult:
        more = "" if self.step == self.plan.n_steps else f"; {self.plan.n_steps} were requested"
        logging.info("%s: finished at step %d%s", self.folder, self.step, more)
        self._tell_end()
        step, measured = (self.heldout and self.measured) or (None, None)
        return TrainResult(self.step, True, measured if step == self.step else None)

    def _tell_end(self) -> None:
        if self.hosts.is_chief:
            self.folder.log_end(self.step)

    def _write_inputs(self) -> None:
        """Give a new run its weights, and put options and vocabulary into its folder."""
        if self.saved is None and self.initialize is not None:
            self.initialize(self.trainer.model)
        self.folder.write_inputs(self.stored, self.vocab_file)

    def _tell_start(self) -> None:
        logging.info(
            "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, vocabulary %d",
            "continuing at" if self.step else "starting at", self.step, self.plan.n_steps,
            self.devices, self.devices.n_replicas, self.run_options.batch_size,
            self.run_options.unroll_steps, self.vocab.size,
        )  # fmt: skip
        logging.info("%s", self.trainer.optimizer.rate)
        self.trainer.optimizer.rate.log_cut_warmup()
        if self.saved is not None:
            logging.info("continuing from %s", self.saved.path)
            self.trainer.optimizer.rate.log_new_length(self.saved)
        logging.info("the first step compiles the graph, which may take half a minute")

    def _loop(self, stop: threading.Event, text: TrainingText) -> TrainResult:
        """Take steps until the end or a signal; save and evaluate when it is time to."""
        log_dir = self.log_dir if self.folder.writes else None
        self.report = RunReport(self.plan, self.run_options, log_dir, self.log_steps)
        self.evaluator, perplexity = Evaluator(self.trainer.model), None
        iterator = text.batches(self.devices, self.saved)
        if self.devices.several_hosts:
            self.trainer.expect(iterator.element_spec)
        is_measured = self.measured is not None and self.measured[0] == self.step
        if self.step and self._evaluation_due() and not is_measured:
            perplexity = self._evaluate()  # a kill interrupted it
        self.last_save = time.monotonic()
        while self.step < self.plan.n_steps:
            if (turn := self._agree(stop.is_set(), text, iterator)).stop:
                break
            self._take_step(text, turn.source)
            # Before an evaluation too: whatever ends it, the steps so far are safe.
            if self._evaluation_due() or self._save_due(turn.late):
                self._save()
            if self._evaluation_due():
                perplexity = self._evaluate()
        if self.step < self.plan.n_steps:
            self._save("stopped at step %d, saved %s")
        return TrainResult(self.step, self.step == self.plan.n_steps, perplexity)

    def _agree(self, stop: bool, text: TrainingText, iterator: Any) -> agreement.Turn:
        """Agree with the other workers on what comes next."""
        late = time.monotonic() - self.last_save > 60 * self.saving.minutes
        turn = agreement.next_turn(self.devices, text, iterator, stop, late)
        if turn.error is not None:
            self._save_before_error()
            raise turn.error
        return turn

    def _take_step(self, text: TrainingText, source: Any) -> None:
        try:
            with text.explaining(self.step):
                result = self.trainer.step(source, self.step)
        except DataError:
            self._save_before_error()
            raise
        self.position = text.traces.popleft().position
        self.report.add(self.step, result)
        self.step += 1

    def _save_before_error(self) -> None:
        if self.position is not None:
            logging.info("saved %s", self.checkpoints.save(self.step, self.position))

    def _save_due(self, late: bool) -> bool:
        return late or self.step == self.plan.n_steps or self.step % self.saving.steps == 0

    def _save(self, message: str = "step %d: saved %s") -> None:
        agreement.check_place(self.hosts, self.step, self.position)
        self.report.flush()
        path = self.checkpoints.save(self.step, self.position)
        logging.info(message, self.step, path)
        self.last_save = time.monotonic()

    def _evaluation_due(self) -> bool:
        at_end = self.step == self.plan.n_steps
        return bool(self.heldout) and (self.step % self.plan.eval_steps == 0 or at_end)

    def _evaluate(self) -> Perplexity:
        """Measure a part of the held-out text, which says what is best; at the end the whole."""
        with self.report.paused():
            found = part = self._measure(self.heldout_part)
            if self.checkpoints.save_if_best(self.step, found.mean):
                logging.info("step %s: the best so far, kept in best", f"{self.step:,}")
            if self.step == self.plan.n_steps and self.heldout is not self.heldout_part:
                found = self._measure(self.heldout)
            self.folder.write_measured(self.step, found, part, self.heldout_part)
        self.report.warn_of_evaluations(self.heldout_part is self.heldout)
        return found

    def _measure(self, heldout: Reader) -> Perplexity:
        found = agreement.agreed_perplexity(
            self.hosts, lambda: self.evaluator(heldout, self.checkpoints.batch_size)
        )
        self.report.heldout(self.step, found, whole=heldout is self.heldout)
        return found
