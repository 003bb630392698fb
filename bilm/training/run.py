"""A training run: data, steps, evaluation, checkpoints, from the first step to the last."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from bilm.data.dataset import Reader
from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import check_shards, describe_shards
from bilm.errors import DataError, OptionsError
from bilm.language_model import BiLM
from bilm.options import schema
from bilm.options.run_options import MAX_SEED, RunOptions
from bilm.scoring.perplexity import Evaluator, Perplexity, explaining_memory, heldout_windows
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.finding.download import local_copy
from bilm.support.files import expanded
from bilm.support.urls import is_url
from bilm.training.checkpoints import RunCheckpoints, Saving
from bilm.training.devices import Devices
from bilm.training.history import History
from bilm.training.hosts import agreement
from bilm.training.hosts.exchange import Alone, Hosts
from bilm.training.memory_estimate import log_estimate
from bilm.training.plan import (
    MAX_STEPS,
    Heldout,
    Plan,
    check_output,
    check_training_text,
    check_unchanged,
    check_words,
    complete_options,
    integer,
    read_heldout,
    read_vocabulary,
    replica_options,
)
from bilm.training.report import RunReport, TrainResult
from bilm.training.run_folder import Measurement, RunFolder
from bilm.training.signals import stop_on_signal
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText
from bilm.training.xla import use_xla

SMALLER = "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary"


class Setup(NamedTuple):
    """The parts of a run before its next step: options, number of steps, text, model, checkpoints
    and last evaluation.

    Fields:
        options: options of one replica.
        plan: numbers of steps in the run, in an epoch and between evaluations.
        shards: name and size of each file of the text.
        heldout: what is measured; None to measure nothing.
        trainer, checkpoints: the model with its optimizer, and its checkpoints; restored if the run
            is resumed.
        checkpoint: the restored checkpoint; None for a new run.
        step: number of steps that were done before.
        perplexity: of the held-out text after these steps; None if it was not measured then.
    """

    options: RunOptions
    plan: Plan
    shards: list[str]
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


class TrainingRun:
    """A training run in a folder. If the folder contains an unfinished run, that run is resumed.

    Args:
        options: options of the run. If `n_train_tokens` is None, the corpus is counted;
            `n_tokens_vocab` is taken from the vocabulary.
        vocab_file: one word per line in descending order of frequency, with `<S> </S> <UNK>`.
        train_prefix: glob of the text shards, plain or compressed, one tokenized sentence per
            line; may be a URL, with `*` for several objects.
        save_dir: folder of checkpoints, options and vocabulary.
        heldout_prefix: glob of the held-out text; None to skip evaluation.
        strategy: from `make_strategy`; None uses all GPUs, or the CPU.
        hosts: the worker processes that share the run; None for a single process.
        n_steps: total steps of the run; None derives them from `n_epochs`.
        eval_steps: steps between evaluations; None for one per epoch.
        heldout_sentences: maximum number of held-out sentences, evenly spaced, in evaluations
            before the last one; None for all. The last evaluation uses all sentences.
        seed: determines the initial weights, the order of the text, dropout and negatives.
        resume: "auto" resumes a run if the folder contains one, "never" refuses a folder that
            contains a run, "must" refuses a folder that contains none.
        saving: when to save and how many checkpoints to keep. A run also saves before each
            evaluation and at its end.
        log_steps: steps between reports; None for one every few seconds.
        log_dir: folder of TensorBoard's files; None for `logs` in `save_dir`.
        precision: dtype of matrix-multiplication inputs, see `BiLM`; a run may be resumed with the
            other dtype.
        xla: whether XLA compiles windows and losses: "auto" uses it on GPUs if a test in another
            process succeeds; "on" or "off". Numbers agree up to rounding.
        initialize: function that assigns the initial weights of a new run; not called if a run is
            resumed.
        on_bad_utf8: "error", or "replace" to read bytes that are not UTF-8 as U+FFFD.
        auto: length and precision that `--options auto` chose, a `bilm.training.auto.Choice` as a
            mapping; stored as `auto.json`.
    Raises: BilmError, here and in `train`, for unusable input, a folder in which another process
        trains, a checkpoint that cannot be written, insufficient memory, and a non-finite loss or
        gradient.

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
        xla: str = "auto",
        auto: Mapping[str, Any] | None = None,
    ):
        _check_type("options", options, RunOptions)
        _check_type("saving", saving, Saving)
        self.auto = auto
        self.options, self.resume, self.saving = options, resume, saving
        self.vocab_file = _absolute("vocab_file", local_copy(vocab_file))
        self.train_prefix = _absolute("train_prefix", train_prefix)
        self.heldout_prefix = heldout_prefix and _absolute("heldout_prefix", heldout_prefix)
        self.seed = integer("seed", seed, 0, MAX_SEED)
        self.n_steps = _count("n_steps", n_steps, MAX_STEPS)
        self.eval_steps = _count("eval_steps", eval_steps)
        self.log_steps = _count("log_steps", log_steps)
        self.heldout_sentences = _count("heldout_sentences", heldout_sentences)
        self.precision, self.initialize, self.on_bad_utf8 = precision, initialize, on_bad_utf8
        save_dir = _absolute("save_dir", save_dir)
        RunFolder(save_dir).check_usable()  # before TensorFlow takes the devices
        self.devices = Devices(strategy, hosts)
        self.hosts = self.devices.hosts
        self.xla = use_xla(xla, self.devices.gpus)
        self.folder = RunFolder(save_dir, writes=self.hosts.is_chief)
        self.log_dir = _absolute("log_dir", log_dir) if log_dir else self.folder.logs
        # The file may be edited later, so the run stores what was loaded.
        self.vocab, self.vocab_content = read_vocabulary(self.vocab_file, options)
        self._check_folder()
        if initialize is None and not self.folder.holds_run:
            check_words(self.vocab)

    def train(self) -> TrainResult:
        """Train from the latest valid checkpoint to the end of the run."""
        shards, heldout = self._open_texts()
        with self.folder.locked(), explaining_memory(str(self.folder), SMALLER):
            self._check_folder()  # another process may have trained here since
            setup = self._set_up(shards, heldout)
            if setup.is_done:
                return self._end_at_once(setup)
            text = TrainingText(setup.options, self.vocab, shards, self.seed)
            # Before this, a signal ends the process at once: there is nothing to save yet.
            with stop_on_signal() as stop, closing(text):
                # From here, a signal to any worker stops and saves the run.
                self.hosts.gather("start", None)
                self._log_start(setup)
                result = TrainingLoop(self, setup, text, stop).run()
            self._log_end(result)
            return result

    def _check_folder(self) -> None:
        # Only the chief: it may already write to the folder while another worker checks it.
        if self.hosts.is_chief:
            self.folder.check_resume(self.resume)
            self.folder.check_same_run(self.options, self.vocab_file, self.vocab_content)

    def _open_texts(self) -> tuple[Shards, Heldout | None]:
        """Find and check the files of the training text and of the held-out text."""
        for pattern in filter(None, (self.train_prefix, self.heldout_prefix)):
            check_output(pattern, self.folder)
        shards = resolve_shards(self.train_prefix, self.on_bad_utf8)
        heldout = files = None
        if self.heldout_prefix:
            files = resolve_shards(self.heldout_prefix, self.on_bad_utf8)
        agreement.check_alike(self.hosts, "inputs", self._compared(shards, files))
        if files is not None:
            heldout = read_heldout(files, self.vocab, self.options, self.heldout_sentences)
        if self.hosts.is_chief:
            check_training_text(shards, files, self.vocab_file, self.folder)
        return shards, heldout

    def _compared(self, shards: Shards, heldout: Shards | None) -> dict[str, Any]:
        """Return what must be the same on all workers."""
        names = ("seed", "n_steps", "eval_steps", "heldout_sentences", "precision", "resume")
        texts = [("shard {} of the text", shards), ("shard {} of the held-out text", heldout or ())]
        return {
            **agreement.flat(self.options.to_dict()),
            **{name: getattr(self, name) for name in (*names, "on_bad_utf8")},
            "saving": list(astuple(self.saving)),
            "SHA-256 of the vocabulary": agreement.digest(self.vocab_content),
            **{
                name.format(k): described
                for name, files in texts
                for k, described in enumerate(describe_shards(files))
            },
        }

    def _set_up(self, shards: Shards, heldout: Heldout | None) -> Setup:
        """Count the text, create the model, restore the latest valid checkpoint; write the options.

        All workers then have the same weights, slots and states.
        """
        checkpoint = agreement.agreed_checkpoint(self.hosts, self.folder)
        step = (checkpoint.step or 0) if checkpoint else 0

        def complete() -> dict[str, Any]:
            stored = self.folder.stored_options()
            return complete_options(self.options, self.vocab, shards, stored, checkpoint).to_dict()

        completed = self.hosts.from_chief("options", complete)
        requested = schema.read(RunOptions, completed, strict=False)
        measured = agreement.agreed_measurement(self.hosts, self.folder) if heldout else None
        same_heldout = not (measured and heldout) or self.folder.check_heldout(
            measured, heldout.described
        )
        described = describe_shards(shards)
        if checkpoint:
            check_shards(shards, checkpoint.shards or described)
            if self.hosts.is_chief:
                self.folder.log_changes(requested)
        options = replica_options(requested, self.vocab.size, self.devices.n_replicas, checkpoint)
        plan = Plan(options, self.devices.n_replicas, self.n_steps, self.eval_steps)
        log_estimate(options, self.vocab.size, self.devices)
        plan.log(options.n_train_tokens or 0)
        # Store the batch_size that was requested at the first start, not the rows that a replica
        # has now, because the number of replicas may change again.
        n_rows = (checkpoint and checkpoint.batch_size) or requested.batch_size
        # Here, because the program may have drawn random numbers since the run was created.
        keras.utils.set_random_seed(self.seed)
        trainer = Trainer(
            options, self.vocab.size, self.devices, self.seed, self.precision, plan.n_steps,
            self.xla,
        )  # fmt: skip
        checkpoints = RunCheckpoints(
            trainer,
            self.folder,
            plan.n_steps,
            described,
            n_rows,
            self.saving.keep,
            self.vocab.digest,
        )
        if checkpoint is not None:
            checkpoints.restore(checkpoint, same_heldout)
        elif self.initialize is not None:
            self.initialize(trainer.model)
        agreement.check_same_start(self.hosts, checkpoints.content.digests, checkpoint)
        # Before the options: after a kill in between, the same command still finds another n_epochs
        # than the stored one, and derives the length again.
        if self.auto is not None:
            self.folder.write_auto({**self.auto, "n_steps": plan.n_steps})
        elif checkpoint is None:
            self.folder.remove_auto()
        self.folder.write_inputs(requested.replace(batch_size=n_rows), self.vocab_content)
        perplexity = None
        if measured and same_heldout and measured.step == step:
            perplexity = measured.perplexity
        return Setup(
            options, plan, described, heldout, trainer, checkpoints, checkpoint, step,
            perplexity,
        )  # fmt: skip

    def _end_at_once(self, setup: Setup) -> TrainResult:
        n_steps = setup.plan.n_steps
        more = "" if setup.step == n_steps else f"; {n_steps} were requested"
        logging.info("%s: finished at step %d%s", self.folder, setup.step, more)
        result = TrainResult(setup.step, True, setup.perplexity)
        self._log_end(result)
        return result

    def _log_start(self, setup: Setup) -> None:
        options, rate = setup.options, setup.trainer.schedule
        logging.info(
            "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, vocabulary %d",
            "continuing at" if setup.step else "starting at", setup.step, setup.plan.n_steps,
            self.devices, self.devices.n_replicas, options.batch_size, options.unroll_steps,
            self.vocab.size,
        )  # fmt: skip
        logging.info("%s", rate)
        if changed := options.opted_in():
            logging.info("%s", ", ".join(f"{name} {value}" for name, value in changed.items()))
        rate.log_cut_warmup()
        if setup.checkpoint is not None:
            logging.info("continuing from %s", setup.checkpoint.path)
            rate.log_new_length(setup.checkpoint)
        logging.info("the first step compiles the graph, which may take half a minute")

    def _log_end(self, result: TrainResult) -> None:
        if not result.finished:
            how = " with --resume=auto" if self.resume == "never" else ""
            logging.info("the same command%s continues the run", how)
        elif self.hosts.is_chief:
            self.folder.log_end(result.step)


class TrainingLoop:
    """Takes the steps of a run until its end or a signal; saves and evaluates when a save or an
    evaluation is due.

    Args:
        run: the run.
        setup: its state before the next step.
        text: what it trains on.
        stop: set by a signal.
    """

    def __init__(self, run: TrainingRun, setup: Setup, text: TrainingText, stop: threading.Event):
        self.devices, self.hosts, self.folder = run.devices, run.hosts, run.folder
        self.saving, self.text, self.stop = run.saving, text, stop
        self.setup, self.plan, self.heldout = setup, setup.plan, setup.heldout
        self.trainer, self.checkpoints, self.step = setup.trainer, setup.checkpoints, setup.step
        self.position = setup.checkpoint.position if setup.checkpoint else None
        self.evaluator = Evaluator(setup.trainer.model)
        writes = run.folder.writes
        history = History(run.folder.history_file if writes else None, self.step)
        log_dir = run.log_dir if writes else None
        self.report = RunReport(setup.plan, setup.options, log_dir, run.log_steps, history)
        self.last_save = time.monotonic()

    def run(self) -> TrainResult:
        """Train; return how the run ended."""
        iterator, perplexity = self.text.batches(self.devices, self.setup.checkpoint), None
        if self.devices.several_hosts:
            self.trainer.expect(iterator.element_spec)
        if self.step and self._evaluation_due() and self.setup.perplexity is None:
            perplexity = self._evaluate()  # the run was killed before this evaluation ended
        self.last_save = time.monotonic()
        while self.step < self.plan.n_steps:
            late = time.monotonic() - self.last_save > 60 * self.saving.minutes
            stop = self.stop.is_set()
            turn = agreement.next_turn(self.devices, self.text, iterator, stop, late)
            if turn.error is not None:
                self._save_before_error()
                raise turn.error
            if turn.stop:
                break
            self._take_step(turn.source)
            # Before an evaluation too: if that fails, no step is lost.
            if self._evaluation_due() or self._save_due(turn.late):
                self._save()
            elif self.step % self.plan.epoch_steps == 0:
                check_unchanged(self.text.shards, self.setup.shards, self.step)
            if self._evaluation_due():
                perplexity = self._evaluate()
        if self.step < self.plan.n_steps:
            self._save("stopped at step %d, saved %s")
        return TrainResult(self.step, self.step == self.plan.n_steps, perplexity)

    def _take_step(self, source: Any) -> None:
        try:
            with self.text.explaining(self.step):
                result = self.trainer.step(source, self.step)
        except DataError:
            self._save_before_error()
            raise
        self.position = self.text.traces.popleft().position
        self.report.add(self.step, result)
        self.step += 1

    def _save_before_error(self) -> None:
        if self.position is not None:
            self.folder.check_held(self.step)
            self.report.flush(self.step)
            logging.info("saved %s", self.checkpoints.save(self.step, self.position))

    def _save_due(self, late: bool) -> bool:
        return late or self.step == self.plan.n_steps or self.step % self.saving.steps == 0

    def _save(self, message: str = "step %d: saved %s") -> None:
        self.folder.check_held(self.step)
        check_unchanged(self.text.shards, self.setup.shards, self.step)
        agreement.check_place(self.hosts, self.step, self.position)
        self.report.flush(self.step)
        path = self.checkpoints.save(self.step, self.position)
        logging.info(message, self.step, path)
        self.last_save = time.monotonic()

    def _evaluation_due(self) -> bool:
        at_end = self.step == self.plan.n_steps
        return self.heldout is not None and (self.step % self.plan.eval_steps == 0 or at_end)

    def _evaluate(self) -> Perplexity | None:
        """Measure the part of the held-out text that selects the best checkpoint; at the end of the
        run, also the whole text."""
        if self.heldout is None:
            return None
        whole, part, text = self.heldout
        with self.report.evaluating(whole is part):
            found = of_part = self._measure(part, text, whole is part)
            self.folder.check_held(self.step)
            if self.checkpoints.save_if_best(self.step, found.mean, self.position):
                logging.info("step %s: the best so far, kept in best", f"{self.step:,}")
            if self.step == self.plan.n_steps and whole is not part:
                found = self._measure(whole, text, True)
                self.folder.check_held(self.step)
            # The history first: after a kill between the two, a resumed run measures again.
            self.report.flush(self.step)
            self.folder.write_measured(Measurement(self.step, found, of_part.mean, text))
        return found

    def _measure(self, heldout: Reader, described: list[str], whole: bool) -> Perplexity:
        """Measure the perplexity of a reader of the held-out text.

        Raises: DataError if the text is not the described one, before or after it is read.
        """
        n_rows = self.checkpoints.content.batch_size

        def measure() -> Perplexity:
            check_unchanged(heldout.shards, described, self.step)
            found = self.evaluator(heldout_windows(heldout, n_rows))
            check_unchanged(heldout.shards, described, self.step)
            return found

        found = Perplexity(*self.hosts.from_chief("evaluation", measure))
        self.report.heldout(self.step, found, whole)
        return found


def _absolute(name: str, path: str | Path) -> str:
    """Return a path that stays the same if the program changes its working folder.

    Raises: OptionsError if the argument is not a path.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise OptionsError(f"{name}: found {path!r}, expected a path")
    return path if is_url(path) else os.path.abspath(expanded(path))


def _count(name: str, value: int | None, most: int | None = None) -> int | None:
    """Return an argument that is None or a number from 1. Raises: OptionsError."""
    return None if value is None else integer(name, value, 1, most)


def _check_type(name: str, value: Any, expected: type) -> None:
    """Raise OptionsError if an argument is not an instance of a class."""
    if not isinstance(value, expected):
        raise OptionsError(f"{name}: found {value!r}, expected a {expected.__name__}")
