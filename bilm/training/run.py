"""A training run, from its spec to its last step: `train`, `carry_out` and the loop, `Run`."""

import os
import threading
import time
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import keras
from absl import logging

from bilm.data.shards import Shards, TextFiles
from bilm.data.stream import same_shards
from bilm.errors import DataError, explaining_memory
from bilm.options.run_options import RunOptions
from bilm.scoring.perplexity import Perplexity
from bilm.scoring.running_text import Evaluator, heldout_dataset, heldout_windows
from bilm.scoring.verdict import Measurement, Verdict
from bilm.storage.checkpoint import Checkpoint, CheckpointContent, check_name, checkpoint_path
from bilm.support.process import available_cores, is_machine_busy
from bilm.training.decisions import (
    Pace,
    Timing,
    comparison,
    is_done,
    is_evaluation_due,
    is_save_due,
    is_save_late,
    pace,
    processor_share,
)
from bilm.training.devices import Devices
from bilm.training.history import History
from bilm.training.hosts import Hosts
from bilm.training.memory import check_memory
from bilm.training.report import RunReport, progress_bar
from bilm.training.request import RunRequest, absolute
from bilm.training.run_folder import RunFolder
from bilm.training.signals import stop_on_signal
from bilm.training.spec import Heldout, RunProgress, RunSpec
from bilm.training.starting import new_run, resumed_run
from bilm.training.step import Trainer
from bilm.training.texts import check_unchanged
from bilm.training.training_text import TrainingText

SMALLER = "batch_size, unroll_steps, n_negative_samples_batch or the vocabulary"


class TrainResult(NamedTuple):
    """How a run ended.

    Fields:
        step: number of steps; `finished`: if not, the same call continues the run.
        heldout: the last held-out perplexity; None if nothing was measured.
        verdict: the verdict on the model that the last evaluation measured.
        model: folder of the checkpoint with the best held-out perplexity, or of the run.
        before: of fine-tuning, the held-out perplexity before the first step.
    """

    step: int
    finished: bool
    heldout: Perplexity | None
    verdict: Verdict | None
    model: Path
    before: Perplexity | None = None

    def __repr__(self) -> str:
        end = "finished" if self.finished else "not finished"
        return (
            f"<{end} after {self.step:,} steps; held-out perplexity {self.heldout}; {self.model}>"
        )

    def _repr_html_(self) -> str:
        lines = [repr(self)[1:-1], *(self.verdict.lines if self.verdict else [])]
        return "<br>".join(map(escape, lines))


def train(
    text: TextFiles,
    folder: str | Path,
    *,
    vocab: str | Path | None = None,
    options: RunOptions | str | Path | None = None,
    heldout: TextFiles | None = None,
    hours: float | None = None,
    from_scratch: bool = False,
    devices: Devices | None = None,
    started: float | None = None,
    **others: Any,
) -> TrainResult:
    """Train a biLM on text, as the command `bilm train` does. A run in the folder is resumed.

    Args:
        text: file, glob or URL of tokenized sentences, one per line, plain or compressed.
        folder: folder of the run, which contains its checkpoints, options and vocabulary.
        vocab: one word per line in descending order of frequency, with `<S> </S> <UNK>`. None for
            the vocabulary of the resumed run. A new run makes its own, and holds out a part of the
            text if `heldout` is None.
        options: `RunOptions`, a file, the name of packaged options, or "auto". None for those of
            the resumed run, or for "auto", which chooses by the text and by `hours`.
        heldout: text to measure.
        hours: time of the run, with the options "auto"; None for as long as training is useful.
        from_scratch: with the options "auto", start from random weights instead of a packaged
            model's character encoder.
        devices: GPUs and worker processes; None for `gpus`, `n_gpus` and `cpu_replicas`.
        started: `time.monotonic()` at which `hours` begin; None for now.
        others: fields of `RunSettings`, such as `n_steps` and `seed`, options that replace others,
            such as `batch_size`, and arguments of `make_strategy`, such as `n_gpus`. With
            `n_train_tokens`, a long text is not counted.
    Raises: BilmError for unusable input, a folder in which another process trains, a checkpoint
        that cannot be written, insufficient memory, and a non-finite loss or gradient.

    Example:
        result = bilm.train("text.txt", "run", hours=0.2)
        print(result.verdict)
    """
    request = RunRequest(
        text, others, heldout=heldout, vocab=vocab, options=options, hours=hours,
        from_scratch=from_scratch, devices=devices, started=started,
    )  # fmt: skip
    return carry_out(request, folder)


def carry_out(request: RunRequest, folder: str | Path) -> TrainResult:
    """Train from the latest valid checkpoint in a folder, or from the start, to the end of the
    requested run. The folder is locked from the first file on."""
    devices = request.devices
    home = RunFolder(absolute(folder), writes=devices.hosts.is_chief)
    check_name(home.path)
    with home.locked(), explaining_memory(str(home), SMALLER):
        if home.writes:
            home.check_resume(request.settings.resume)
        checkpoint = _agreed_checkpoint(home, devices.hosts)
        if checkpoint is None:
            spec = new_run(request, home)
        else:
            spec = resumed_run(request, home, checkpoint)
        devices.hosts.check_alike("run", spec.described)
        run = Run(spec, home, devices, checkpoint)
        if is_done(run.spec, run.progress):
            logging.info("%s: finished at step %d of %d", home, run.progress.step, spec.n_steps)
        else:
            run.train()
        return run.end()


def _agreed_checkpoint(folder: RunFolder, hosts: Hosts) -> Checkpoint | None:
    """Open the checkpoint that the chief has chosen; return None if there is none. Raises:
    WeightsError if this worker cannot read it."""
    saved = folder.latest_checkpoint(whole=True) if hosts.is_chief else None
    name = hosts.from_chief("checkpoint", lambda: saved and os.path.basename(saved.path))
    if hosts.is_chief or name is None:
        return saved
    checkpoint = Checkpoint(f"{folder.path}/{name}")
    checkpoint.check()
    return checkpoint


class Run:
    """A run between two steps: `spec`, `progress` and `timing` are values that its methods replace
    as the functions of `bilm.training.decisions` decide. All workers have the same weights."""

    def __init__(
        self, spec: RunSpec, folder: RunFolder, devices: Devices, checkpoint: Checkpoint | None
    ):
        self._processor_start = time.process_time()
        self.spec = spec
        self.folder = folder
        self.devices = devices
        self.hosts = devices.hosts
        # The program may have drawn random numbers before.
        keras.utils.set_random_seed(spec.settings.seed)
        texts = spec.texts
        self.trainer = Trainer(
            spec.options_of_replica(devices.n_replicas), texts.vocab.size, devices,
            spec.settings.seed, spec.settings.precision or "float32", spec.schedule,
        )  # fmt: skip
        self.content = CheckpointContent(
            self.trainer.optimizer.variables,
            self.trainer.optimizer.slots,
            self.trainer.global_state(),
        )
        self._saved_step = -1
        self.evaluator = Evaluator(self.trainer.model, texts.vocab.unk)
        self.progress = RunProgress()
        if checkpoint is not None:
            self.progress = self._restored(checkpoint)
        elif spec.start is not None:
            spec.start(self.trainer.model, texts.vocab)
            self._measure_at_start()
        self.hosts.check_alike("start", self.content.digests)
        folder.write_inputs(spec.options, texts)

        history = History(folder.history_file if folder.writes else None, self.progress.step)
        self.report = RunReport(self.spec, history)
        self.timing = Timing.start(time)
        self._logged_steps = spec.n_steps  # the length that the log has stated

    def _restored(self, checkpoint: Checkpoint) -> RunProgress:
        """Restore a checkpoint; return its progress with the last evaluation, as the chief reads
        it, if that measured the same text."""
        self.trainer.set_state(self.content.restore(checkpoint))
        record = checkpoint.record
        self._saved_step = record.step
        # The score in the folder `best` takes precedence: the checkpoint may predate it.
        kept = self.folder.find_best(whole=True)
        progress = RunProgress(
            step=record.step,
            position=checkpoint.position,
            best=record.best if kept is None else kept.record.best,
            processor_seconds=record.processor_seconds,
        )
        heldout = self.spec.texts.heldout
        written = self.folder.read_measured() if self.hosts.is_chief and heldout else None
        figures = self.hosts.from_chief("measured", lambda: written and written.to_record())
        if heldout is None or figures is None:
            return progress
        measured = Measurement.from_record(figures)
        if same_shards(heldout.described, measured.text):
            return replace(progress, measured=measured)
        if self.folder.writes:
            logging.warning(
                "%s: the held-out text was %s so far, and is %s from here; earlier scores no "
                "longer count for the best checkpoint",
                self.folder.measured_file, measured.text, heldout.described,
            )  # fmt: skip
        return replace(progress, best=None)

    def _measure_at_start(self) -> None:
        """Measure the held-out text of fine-tuning before the first step."""
        spec = self.spec
        if spec.finetuning is None or spec.texts.heldout is None:
            return
        perplexity = self._perplexity_of(spec.texts.heldout.shards)
        logging.info("before the first step: held-out perplexity %s (running text)", perplexity)
        finetuning = spec.finetuning.replace(before=perplexity._asdict())
        self.spec = replace(spec, finetuning=finetuning)

    def train(self) -> None:
        """Take the steps of the run until its end or a signal."""
        spec = self.spec
        texts = spec.texts
        text = TrainingText(self.trainer.options, texts.vocab, texts.text, spec.settings.seed)
        # Before this, a signal ends the process at once: there is nothing to save yet.
        with stop_on_signal() as stop:
            # From here, a signal to any worker stops and saves the run.
            self.hosts.gather("start", None)
            self._log_start()
            check_memory(self.trainer, texts.vocab.size, spec.settings.ignore_memory)
            logging.info("the first step compiles the graph, which may take half a minute")
            if self.progress.step and not self.progress.is_measured:
                self._evaluate_if_due()  # the run was killed before this evaluation ended
            with progress_bar(spec.n_steps) as self.report.bar:
                self._take_steps(text, stop)
                if self.progress.step < self.spec.n_steps:
                    logging.info("stopped at step %d, saved %s", self.progress.step, self.save())

    def _take_steps(self, text: TrainingText, stop: threading.Event) -> None:
        batches = text.batches(self.devices, self.progress.step, self.progress.position)
        while self.progress.step < self.spec.n_steps:
            # Each worker has its batch before the step: if one cannot read, no step may start,
            # because the others would wait for its gradients.
            try:
                batch, position = next(batches)
            except DataError:
                if not self.devices.several_hosts and self.progress.position is not None:
                    logging.info("step %d: saved %s", self.progress.step, self._write())
                raise
            is_late = is_save_late(self.spec, self.timing, time.monotonic())
            turn = self.hosts.gather("step", [stop.is_set(), is_late])
            if any(stopped for stopped, _ in turn):
                break

            timing = self.timing
            compiles = not self.trainer.is_compiled
            result = self.trainer.step(batch, self.progress.step)
            self.progress = replace(self.progress, step=self.progress.step + 1, position=position)
            self.timing = timing.after_step(time, compiles)
            self.report.add(self.spec, self.progress.step, result, self.timing, compiles)

            # The pace first: a save contains the length of the run.
            if self.timing.is_measured and not timing.is_measured:
                self._warn_if_busy()
            change = pace(self.spec, self.progress, self.timing)
            if change is not None:
                self._change_pace(change)
            if is_save_due(self.spec, self.progress, any(late for _, late in turn)):
                self.save()
            if self.progress.step % self.spec.epoch_steps == 0:
                self._check_text()
            self._evaluate_if_due()

    def end(self) -> TrainResult:
        """Log how the run ended, and return it."""
        progress = self.progress
        is_finished = progress.step >= self.spec.n_steps
        model = str(self.folder.path)
        if not is_finished:
            how = " with --resume=auto" if self.spec.settings.resume == "never" else ""
            logging.info("the same command%s continues the run", how)
        else:
            model = self.hosts.from_chief("model", lambda: str(self.folder.log_end(progress.step)))
        measured = progress.measured
        heldout = measured and measured.perplexity
        verdict = measured and measured.verdict
        before = self.spec.start_perplexity
        return TrainResult(progress.step, is_finished, heldout, verdict, Path(model), before)

    # --- what decisions lead to ---

    def save(self) -> str:
        """Save a checkpoint and return its path. Raises: BilmError if text or folder changed."""
        self._check_text()
        # The place in the text differs if the texts of workers differ.
        place = f"the place in the text after step {self.progress.step}"
        self.hosts.check_alike("place", lambda: {place: self.progress.place_checksum()})
        return self._write()

    def _write(self) -> str:
        """Save a checkpoint, unless that of this step is saved, and return its path."""
        step = self.progress.step
        self.folder.check_held(step)
        self.report.flush(step)
        if step != self._saved_step:
            self.content.set_state(self.trainer.global_state(), self.progress.position)
            self.content.check_finite(step)
            self._write_to(self.folder.path, self.spec.settings.keep_checkpoints)
            self._saved_step = step
        self.timing = self.timing.after_save(time)
        return checkpoint_path(self.folder.path, step)

    def _write_to(self, folder: Path, keep: int) -> None:
        """Write the state that was last saved or restored; the process that writes does this."""
        if self.folder.writes:
            seconds = time.process_time() - self._processor_start
            record = self.spec.record(self.progress, seconds)
            self.content.write(folder, record, keep)

    def _check_text(self) -> None:
        """Raise DataError if the training text has changed."""
        check_unchanged(self.spec.texts.text, self.spec.texts.text_files, self.progress.step)

    def _evaluate_if_due(self) -> None:
        """Measure the held-out text if it is due, and keep the best checkpoint."""
        heldout = self.spec.texts.heldout
        if heldout is None or not is_evaluation_due(self.spec, self.progress):
            return
        step = self.progress.step
        figures = self.hosts.from_chief("evaluation", lambda: self._heldout_perplexity(heldout))
        self.timing = self.timing.after_evaluation(time)
        self.folder.check_held(step)

        # The best checkpoint.
        perplexity = Perplexity(*figures)
        compared = comparison(self.spec, step, self.timing)
        measured = Measurement(step, perplexity, heldout.described, compared)
        best = self.progress.best
        is_best = best is None or perplexity.mean < best
        self.progress = replace(
            self.progress, measured=measured, best=perplexity.mean if is_best else best
        )
        if is_best:
            # First, so that a kill never leaves a checkpoint in `best` without them.
            self.folder.copy_inputs_to_best(measured)
            self._write_to(self.folder.best, keep=1)

        # The history first: after a kill between the two, a resumed run measures again.
        self.report.heldout(self.spec, step, perplexity, str(compared), is_best)
        self.report.flush(step)
        self.folder.write_measured(measured)

    def _perplexity_of(self, text: Shards) -> Perplexity:
        """Return the perplexity of running text."""
        spec = self.spec
        reader = heldout_dataset(text, spec.texts.vocab, spec.options.bidirectional)
        return self.evaluator(heldout_windows(reader, spec.options.batch_size))

    def _heldout_perplexity(self, heldout: Heldout) -> Perplexity:
        """Measure the held-out text, at the end of the run also with all sentences, for the log."""
        perplexity = self._perplexity_of(heldout.shards)
        if heldout.shards.left_out and self.progress.step == self.spec.n_steps:
            # Once, as it takes as long
            whole = self._perplexity_of(heldout.shards.leaving_out(()))
            logging.info("with the sentences of the training text: perplexity %s", whole)
        check_unchanged(heldout.shards, heldout.files.text, self.progress.step)
        return perplexity

    def _change_pace(self, change: Pace) -> None:
        """Change the length of the run and the options that depend on it, and save."""
        logged_steps = self._logged_steps
        self.spec = self.spec.with_pace(change.n_steps, change.changes)
        options = self.spec.options_of_replica(self.devices.n_replicas)
        self.trainer.change(options, self.spec.schedule)
        if change.missing_hours is not None and self.spec.auto is not None:
            hours = self.spec.auto.hours or 0.0
            logging.warning(
                "--hours %g: too short: the run ends after %d steps; %.2g hours suffice for %d",
                hours, change.n_steps, hours + change.missing_hours, change.n_useful_steps,
            )  # fmt: skip
        if change.changes:
            self.folder.write_options(self.spec.options, self.spec.texts.text)
            values = ", ".join(f"{key}={value}" for key, value in change.changes.items())
            again = "" if self.trainer.is_compiled else "; the next step compiles the graph again"
            logging.info("auto: for this length %s%s", values, again)
        if not 0.75 < change.n_steps / logged_steps < 1.33:  # the bar shows every length
            logging.info("%d steps instead of %d, to end on time", change.n_steps, logged_steps)
            self._logged_steps = change.n_steps
            self._log_expected()
        self.save()

    def _warn_if_busy(self) -> None:
        """Warn if other programs had the processors during the first steps."""
        share = processor_share(self.timing, available_cores())
        is_on_cpu = self.devices.names[0].startswith("CPU")
        if is_on_cpu and is_machine_busy() and share is not None:
            logging.warning(
                "the machine is busy: this run gets %.0f %% of its processors", 100 * share
            )

    def _log_start(self) -> None:
        spec = self.spec
        options = self.trainer.options
        step = self.progress.step
        logging.info(
            "%s step %d of %d on %s: %d replicas x %d rows x %d tokens, %d an epoch, %d words",
            "continuing at" if step else "starting at", step, spec.n_steps, self.devices,
            self.devices.n_replicas, options.batch_size, options.unroll_steps, spec.epoch_steps,
            spec.texts.vocab.size,
        )  # fmt: skip
        settings = spec.settings
        logging.info(
            "%s; saved every %d steps or %g minutes to %s",
            spec.schedule, settings.checkpoint_steps, settings.checkpoint_minutes, self.folder,
        )  # fmt: skip
        if not step:
            self._log_expected()

    def _log_expected(self) -> None:
        """Log which held-out perplexity a run of `auto` should reach."""
        compared = comparison(self.spec, self.spec.n_steps)
        if compared and compared.expected:
            logging.info("auto: expected held-out perplexity: %.0f to %.0f", *compared.expected)
