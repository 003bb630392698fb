"""A training run: data, steps, evaluation, checkpoints, from the first step to the last."""

import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import check_shards, describe_shards
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import DataError
from bilm.language_model import BiLM
from bilm.options import schema
from bilm.options.run_options import RunOptions
from bilm.scoring.ngrams import Ngrams
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.finding.download import local_copy
from bilm.storage.run_record import RunRecord
from bilm.storage.stored_model import open_model
from bilm.storage.tensor_reader import check_name
from bilm.support.files import expanded
from bilm.support.out_of_memory import explaining_memory
from bilm.support.urls import is_url
from bilm.training.callbacks import Evaluate, Pace, RunState, Save
from bilm.training.checkpoints import RunCheckpoints
from bilm.training.devices import Devices
from bilm.training.history import History
from bilm.training.hosts.exchange import Hosts
from bilm.training.measurement import Measurement
from bilm.training.memory import check_memory
from bilm.training.plan import (
    Heldout,
    Plan,
    Texts,
    check_words,
    compare_texts,
    complete_options,
    read_heldout,
    replica_options,
)
from bilm.training.report import RunReport, TrainResult, progress_bar
from bilm.training.run_folder import RunFolder
from bilm.training.schedule import Schedule
from bilm.training.settings import RunSettings, Saving
from bilm.training.signals import stop_on_signal
from bilm.training.step import Trainer
from bilm.training.survey import LONG_TEXT, Survey, check_training_text, survey
from bilm.training.training_text import TrainingText

__all__ = ["RunSettings", "Saving", "TrainResult", "TrainingRun"]

SMALLER = "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary"


class TrainingRun:
    """A training run in a folder. If the folder contains an unfinished run, that run is resumed.

    Args:
        options: options of the run. If `n_train_tokens` is None, the corpus is counted;
            `n_tokens_vocab` is None or the number of words of the vocabulary.
        vocab_file: one word per line in descending order of frequency, with `<S> </S> <UNK>`.
        train_prefix: the `Shards` of the text or their glob, plain or compressed, one tokenized
            sentence per line; may be a URL, with `*` for several objects.
        save_dir: folder of checkpoints, options and vocabulary.
        heldout_prefix: the same for the held-out text; None to skip evaluation.
        strategy: from `make_strategy`; None uses all GPUs, or the CPU.
        hosts: the worker processes that share the run; None for a single process.
        initialize: function of the model and the held-out text that assigns the initial weights of
            a new run and returns the record of a fine-tuning run, see `RunRecord`.
        survey: the result of `survey` for the training text, if the caller has read it.
        settings: fields of `RunSettings`, such as `n_steps` and `seed`.
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
        train_prefix: str | Shards,
        save_dir: str | Path,
        heldout_prefix: str | Shards | None = None,
        *,
        strategy: tf.distribute.Strategy | None = None,
        hosts: Hosts | None = None,
        initialize: Callable[[BiLM, Heldout | None], Mapping[str, Any] | None] | None = None,
        survey: Survey | None = None,
        **settings: Any,
    ):
        self.options = options
        self.settings = RunSettings(**settings)
        self.initialize = initialize
        self.finetuning: Mapping[str, Any] | None = None  # the record of a fine-tuning run
        self.survey = survey
        self.vocab_file = _absolute(local_copy(vocab_file))
        self.shards = self._shards(train_prefix)
        self.heldout_shards = self._shards(heldout_prefix) if heldout_prefix else None
        save_dir = _absolute(save_dir)
        check_name(save_dir)
        self.devices = Devices(strategy, hosts)
        self.hosts = self.devices.hosts
        self.folder = RunFolder(save_dir, writes=self.hosts.is_chief)
        # The file may be edited later, so the run stores what was loaded.
        self.vocab = vocabulary_of(self.vocab_file, options.model, n_tokens=None)
        self.vocab_content = Path(self.vocab_file).read_bytes()
        self._check_folder()
        if options.n_tokens_vocab not in (None, n_words := self.vocab.size):
            expected = f"{n_words}, the number of words of {self.vocab_file}, or no such key"
            name = f"{options.source}n_tokens_vocab"
            raise schema.unexpected(name, options.n_tokens_vocab, expected)
        if initialize is None and not self.folder.holds_run:
            check_words(self.vocab)

    def train(self) -> TrainResult:
        """Train from the latest valid checkpoint to the end of the run."""
        self.hosts.check_alike("inputs", self._compared)
        if self.hosts.is_chief:
            check_training_text(self.shards, self.heldout_shards, self.vocab_file)
        with self.folder.locked(), explaining_memory(str(self.folder), SMALLER):
            self._check_folder()  # another process may have trained here since
            run = self._set_up()
            if run.is_done:
                logging.info(
                    "%s: finished at step %d of %d", self.folder, run.step, run.plan.n_steps
                )
                result = TrainResult(run.step, True, run.perplexity)
            else:
                seed = self.settings.seed
                text = TrainingText(run.trainer.options, self.vocab, self.shards, seed)
                # Before this, a signal ends the process at once: there is nothing to save yet.
                with stop_on_signal() as stop, closing(text):
                    # From here, a signal to any worker stops and saves the run.
                    self.hosts.gather("start", None)
                    self._log_start(run)
                    result = self._take_steps(run, text, stop)
            if not result.finished:
                how = " with --resume=auto" if self.settings.resume == "never" else ""
                logging.info("the same command%s continues the run", how)
            elif self.hosts.is_chief:
                self.folder.log_end(result.step)
            return result

    def _take_steps(self, run: RunState, text: TrainingText, stop: threading.Event) -> TrainResult:
        """Take the steps of the run until its end or a signal."""
        plan = run.plan
        batches = text.batches(self.devices, run.step, run.position)
        if self.devices.several_hosts:
            run.trainer.expect(batches.element_spec)

        # What happens after each step.
        evaluate = Evaluate(run)
        save = Save(run, self.settings.saving, text.shards)
        pace = Pace(run, save, self.settings.deadline)
        if run.step and run.perplexity is None:
            evaluate()  # the run was killed before this evaluation ended

        with progress_bar(plan.n_steps) as run.report.bar:
            while run.step < plan.n_steps:
                source, stops, late = self._next_turn(text, batches, stop.is_set(), save.is_late)
                if stops:
                    break
                try:
                    with text.explaining():
                        result = run.trainer.step(source, run.step)
                except DataError:
                    save.before_error()
                    raise
                run.position = text.positions.popleft()
                run.report.add(run.step, result)
                run.step += 1
                pace()
                save(late)
                evaluate()
        if run.step < plan.n_steps:
            logging.info("stopped at step %d, saved %s", run.step, save.now())
        return TrainResult(run.step, run.step == plan.n_steps, run.perplexity)

    def _next_turn(
        self, text: TrainingText, batches: Any, stop: bool, late: bool
    ) -> tuple[Any, bool, bool]:
        """Return the argument of this worker's next step, and whether any worker received a signal
        to stop or saved too long ago. With several hosts each worker reads its batch first: if one
        cannot, no step may start, because the others would wait for its gradients."""
        source = batches
        if self.devices.several_hosts:
            with text.explaining():
                source = next(batches)
        stops, lates = zip(*self.hosts.gather("step", [stop, late]), strict=True)
        return source, any(stops), any(lates)

    def _shards(self, text: str | Shards) -> Shards:
        pattern = text if isinstance(text, Shards) else _absolute(text)
        return resolve_shards(pattern, self.settings.on_bad_utf8)

    def _check_folder(self) -> None:
        # Only the chief: it may already write to the folder while another worker checks it.
        if self.hosts.is_chief:
            self.folder.check_resume(self.settings.resume)
            self.folder.check_same_run(self.options, self.vocab_file, self.vocab_content)

    def _compared(self) -> dict[str, Any]:
        """Return what must be the same on all workers."""
        compared = self.options.to_dict() | self.settings.shared()
        compared["SHA-256 of the vocabulary"] = self.vocab.digest
        texts = {"text": self.shards, "held-out text": self.heldout_shards}
        for name, shards in texts.items():
            for k, described in enumerate(describe_shards(shards.paths if shards else ())):
                compared[f"shard {k} of the {name}"] = described
        return compared

    def _set_up(self) -> RunState:
        """Read the texts, create the model, restore the latest valid checkpoint, and write the
        options. All workers then have the same weights, slots and states."""
        checkpoint = self._agreed_checkpoint()
        stored = checkpoint.record if checkpoint else None
        texts = self._read_texts(stored)
        heldout = texts.heldout
        n_replicas = self.devices.n_replicas
        options = replica_options(texts.options, self.vocab.size, n_replicas, checkpoint)
        plan = Plan(options, n_replicas, self.settings, heldout.n_predictions if heldout else 0)
        self.hosts.check_alike("plan", lambda: vars(plan))

        # The last evaluation, as the chief reads it, counts if it measured the same text.
        written = self.folder.read_measured() if self.hosts.is_chief and heldout else None
        figures = self.hosts.from_chief("measured", lambda: written and written.to_record())
        measured = Measurement.from_record(figures) if figures else None
        is_same_text = True
        if measured and heldout:
            is_same_text = self.folder.check_heldout(measured, heldout.described)

        # Here, because the program may have drawn random numbers since the run was created.
        keras.utils.set_random_seed(self.settings.seed)
        schedule = Schedule(options, plan.n_steps, limits_warmup=self.settings.auto is not None)
        trainer = Trainer(
            options, self.vocab.size, self.devices, self.settings.seed, self.settings.precision,
            schedule,
        )  # fmt: skip
        if stored is not None:
            self.finetuning = stored.finetuning
        elif self.initialize is not None:
            self.finetuning = self.initialize(trainer.model, heldout)
        elif encoder := (self.settings.auto or {}).get("encoder"):
            open_model(encoder).assign(trainer.model, softmax=False, stacks=False)

        record = self._record(texts, plan, options.batch_size * n_replicas, stored)
        checkpoints = RunCheckpoints(trainer, self.folder, record, self.settings.saving.keep)
        if checkpoint is not None:
            checkpoints.restore(checkpoint, is_same_text)
        self.hosts.check_alike("start", checkpoints.content.digests)
        self.folder.write_inputs(record.options, self.vocab_content, texts.ngrams)

        step = checkpoints.record.step
        perplexity = None
        if measured and is_same_text and measured.step == step:
            perplexity = measured.perplexity
        history = History(self.folder.history_file if self.folder.writes else None, step)
        report = RunReport(plan, options, self.settings.log_steps, history, heldout is not None)
        position = checkpoint.position if checkpoint else None
        return RunState(plan, trainer, checkpoints, report, heldout, step, position, perplexity)

    def _agreed_checkpoint(self) -> Checkpoint | None:
        """Open the checkpoint that the chief has chosen; return None if there is none. Raises:
        WeightsError if this worker cannot read it."""
        saved = self.folder.latest_checkpoint(whole=True) if self.hosts.is_chief else None
        name = self.hosts.from_chief("checkpoint", lambda: saved and os.path.basename(saved.path))
        if self.hosts.is_chief or name is None:
            return saved
        checkpoint = Checkpoint(f"{self.folder.path}/{name}")
        checkpoint.check_all()
        return checkpoint

    def _read_texts(self, stored: RunRecord | None) -> Texts:
        """Read the texts; all workers return what the chief counts. `stored`: the record of the
        checkpoint of a resumed run."""
        is_chief = self.hosts.is_chief
        is_new = is_chief and stored is None
        heldout = self.heldout_shards
        compared = stored.heldout if stored else None
        is_compared = bool(
            heldout and compared and compared["text"] == describe_shards(heldout.paths)
        )

        # A new run needs the counts. If they are given, a sample of a long text is enough, as for
        # the comparison with held-out text.
        known = self.survey
        if known is None and (is_new or heldout is not None):
            is_long = (self.options.n_train_tokens or 0) > LONG_TEXT
            is_whole = is_chief and not (stored and is_compared) and not is_long
            known = survey(self.shards, self.vocab, is_whole, is_new, heldout)

        def complete() -> list[Any]:
            options = complete_options(self.options, self.vocab, known, stored)
            if heldout is None or known is None or is_compared:
                return [options.to_dict(), compared]
            return [options.to_dict(), compare_texts(heldout, known.repeated)]

        completed, compared = self.hosts.from_chief("options", complete)
        options = schema.read(RunOptions, completed)
        if stored is not None:
            check_shards(self.shards.paths, stored.shards)
            n_left_out = len(self.shards.left_out)
            if stored.left_out not in (None, n_left_out):
                raise DataError(
                    f"{self.folder.heldout_file}: found {n_left_out} sentences to leave out of the "
                    f"text, but the run in this folder left out {stored.left_out}; restore the "
                    "file or use another folder"
                )
            self.folder.log_changes(options, stored)
        ngrams = None if known is None else Ngrams.of(known.sample, self.vocab)
        if heldout is None or ngrams is None:
            return Texts(options, ngrams, compared, None)
        heldout = heldout.without(set(compared["repeated"]))
        of_heldout = read_heldout(heldout, ngrams, self.vocab, self.options)
        return Texts(options, ngrams, compared, of_heldout)

    def _record(self, texts: Texts, plan: Plan, n_rows: int, stored: RunRecord | None) -> RunRecord:
        """Return what the checkpoints store beside the tensors; `n_rows`: of all replicas."""
        # Store the batch_size that was requested at the first start, not the rows that a replica
        # has now, because the number of replicas may change again.
        batch_size = stored.batch_size if stored else texts.options.batch_size
        auto = self.settings.auto
        if auto is not None:
            # A run that is resumed before `Pace` has set its length gets a new budget.
            n_steps = plan.n_steps if self.settings.deadline == math.inf else None
            auto = {**auto, "n_steps": n_steps}
        return RunRecord(
            step=0,
            n_steps=plan.n_steps,
            seed=self.settings.seed,
            batch=(n_rows, batch_size),
            shards=describe_shards(self.shards.paths),
            vocabulary=stored.vocabulary if stored else self.vocab.digest,
            options=texts.options.replace(batch_size=batch_size).to_dict(),
            auto=auto,
            finetuning=self.finetuning,
            heldout=texts.compared,
            left_out=len(self.shards.left_out),
        )

    def _log_start(self, run: RunState) -> None:
        options = run.trainer.options
        logging.info(
            "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, %d an epoch, %d words",
            "continuing at" if run.step else "starting at", run.step, run.plan.n_steps,
            self.devices, self.devices.n_replicas, options.batch_size, options.unroll_steps,
            run.plan.epoch_steps, self.vocab.size,
        )  # fmt: skip
        saving = self.settings.saving
        logging.info(
            "%s; saved every %d steps or %g minutes to %s",
            run.trainer.schedule, saving.steps, saving.minutes, self.folder,
        )  # fmt: skip
        if not run.step:
            run.log_expected()
        check_memory(run.trainer, self.vocab.size, self.settings.ignore_memory)
        logging.info("the first step compiles the graph, which may take half a minute")


def _absolute(path: str | Path) -> str:
    """Return a path that stays the same if the program changes its working folder."""
    return os.fspath(path) if is_url(path) else os.path.abspath(expanded(path))
