"""The folder of a run: its files, who may write to them, and which run they belong to."""

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from absl import logging

from bilm.data.shards import Shards, draw_heldout_part
from bilm.data.text import writing_text
from bilm.data.vocabulary_builder import build_vocabulary
from bilm.errors import BilmError, OptionsError, WeightsError
from bilm.options import schema
from bilm.options.model_options import PROFILE
from bilm.options.run_options import CHANGEABLE, FIXED, RunOptions
from bilm.scoring.verdict import Measurement
from bilm.storage.checkpoint import Checkpoint, checkpoint_paths, latest_checkpoint
from bilm.storage.hdf5 import save_hdf5
from bilm.support.files import remove_leftovers, replacing, try_lock
from bilm.support.model_files import (
    CHECKPOINT,
    HELDOUT,
    HISTORY,
    LOCK,
    MEASURED,
    NGRAM_COUNTS,
    NGRAMS,
    OPTIONS,
    VOCABULARY,
)
from bilm.support.urls import PathLike, require_local
from bilm.training.spec import RunTexts


class RunFolder:
    """The files in a run's folder, except the checkpoints, and in its folder `best`, with the
    checkpoint of the lowest held-out perplexity.

    `writes`: False if another process writes the files of this run. `locked` and the methods that
    write during a run then do nothing; the others must not be called.
    """

    def __init__(self, path: PathLike, writes: bool = True):
        require_local(path, "the folder of a run")
        self.path = Path(os.path.expanduser(path))
        self.writes = writes
        self.best = self.path / "best"
        self.options_file = self.path / OPTIONS
        self.vocab_file = self.path / VOCABULARY
        self.measured_file = self.path / MEASURED
        self.history_file = self.path / HISTORY
        self.heldout_file = self.path / HELDOUT
        self.lock_file = self.path / LOCK
        self._lock: os.stat_result | None = None  # of the lock file, while this object holds it

    def __str__(self) -> str:
        return str(self.path)

    # --- whether it can be written to ---

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create and lock the folder until the block or the process ends; leave nothing if the
        block fails before it has written anything. Raises: BilmError if it is locked or used."""
        if not self.writes:
            yield
            return
        if not self.lock_file.exists():
            self._check_unused()
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        lock = try_lock(self.lock_file)
        if lock is None:
            raise BilmError(f"{self}: another process is training in this folder")
        with lock:
            for folder in (self.path, self.best):
                remove_leftovers(folder / CHECKPOINT)
            self._lock = os.stat(self.lock_file)
            try:
                yield
            except BaseException:
                if list(self.path.glob("*")) == [self.lock_file]:
                    self.lock_file.unlink()
                    if is_new:
                        self.path.rmdir()
                raise
            finally:
                self._lock = None

    def check_held(self, step: int) -> None:
        """Raise BilmError before writing if the path does not lead to the locked folder any more:
        this process would fill a new folder, or write to another process's folder."""
        if self._lock is None:
            return
        try:
            is_held = os.path.samestat(self._lock, os.stat(self.lock_file))
        except (FileNotFoundError, NotADirectoryError):
            is_held = False
        if not is_held:
            raise BilmError(
                f"{self}: was moved or removed during training, or its file {self.lock_file.name} "
                f"was; training ends at step {step}, and nothing more is saved"
            )

    # --- which run it belongs to ---

    @property
    def holds_run(self) -> bool:
        """Whether it contains any checkpoint, whole or not."""
        return bool(checkpoint_paths(self.path))

    def check_resume(self, resume: str) -> None:
        """Raise BilmError if the content of the folder contradicts the setting `resume`."""
        if resume == "never" and self.holds_run:
            raise BilmError(
                f"{self}: contains a run; use another folder, or continue it: --resume=auto"
            )
        if resume == "must" and not self.holds_run:
            raise BilmError(f"{self}: contains no checkpoint of a run that can be resumed")

    def _check_unused(self) -> None:
        """Refuse a folder without a run if it contains files that a run would overwrite. A folder
        with a lock file belongs to a run, which may have ended before its first save."""
        checkpoint = self.latest_checkpoint()
        if checkpoint is not None and not checkpoint.is_reference:
            return
        for name in (OPTIONS, VOCABULARY, HISTORY, NGRAMS, HELDOUT):
            path = self.path / name
            if path.exists():
                raise BilmError(
                    f"{path}: exists, but {self} does not contain a training run; training "
                    "would overwrite the file. Use another folder"
                )

    def check_options(self, stored: RunOptions, options: RunOptions) -> None:
        """Refuse options that a run with `stored` ones cannot change; log which others change."""
        old = _fixed_options(stored)
        new = _fixed_options(options)
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                raise OptionsError(
                    f"{self}: {name} is {old.get(name)} in this folder's run, but "
                    f"{new.get(name)} was requested"
                )
        for name in CHANGEABLE:
            before = getattr(stored, name)
            now = getattr(options, name)
            if self.writes and before != now:
                logging.warning(
                    "%s: %s was %s so far, and is %s from here", self, name, before, now
                )

    def latest_checkpoint(self, whole: bool = False) -> Checkpoint | None:
        """Open the latest checkpoint, or the latest whole one; None if there is none."""
        return latest_checkpoint(self.path, None if whole else lambda name: False)

    def find_best(self, whole: bool = False) -> Checkpoint | None:
        """Open the checkpoint with the lowest held-out perplexity; None if none can be read."""
        try:
            return latest_checkpoint(self.best, None if whole else lambda name: False)
        except WeightsError as error:
            logging.warning("%s", error)
            return None

    # --- files beside the checkpoints ---

    def make_inputs(self, text: Shards, makes_vocab: bool, holds_out: bool) -> None:
        """Hold out a part of a new run's text and make the vocabulary of the rest, as requested.
        Those of a command that ended before its first checkpoint may be of another text."""
        self.heldout_file.unlink(missing_ok=True)
        if holds_out:
            draw_heldout_part(text, self.heldout_file)
        if makes_vocab:
            counts = build_vocabulary(self.training_part(text), self.vocab_file)
            logging.info(
                "%s: %d words with --min_count %d",
                self.vocab_file, counts.n_words, counts.min_count,
            )  # fmt: skip

    def training_part(self, text: Shards) -> Shards:
        """Return a text without all sentences of the held-out part in this folder, if any."""
        if not self.heldout_file.is_file():
            return text
        return text.leaving_out(Shards([str(self.heldout_file)]).digests())

    def write_inputs(self, options: RunOptions, texts: RunTexts) -> None:
        """Write options and counts, and the vocabulary unless a resumed run contains it."""
        if not self.writes:
            return
        self.write_options(options, texts.text)
        if texts.ngrams is not None:
            save_hdf5(self.path / NGRAMS, {NGRAM_COUNTS: texts.ngrams.counts})
        if not (self.holds_run and self.vocab_file.exists()):
            with writing_text(self.vocab_file) as file:
                file.writelines(f"{word}\n" for word in texts.vocab.words)

    def write_options(self, options: RunOptions, text: Shards) -> None:
        """Write `options.json`, with the profile of the text."""
        if self.writes:
            profile = text.profile()._replace(examples={})._asdict()
            schema.write(self.options_file, options.to_dict() | {PROFILE: profile})

    def copy_inputs_to_best(self, measured: Measurement) -> None:
        """Copy options, vocabulary and counts into `best`, and write its evaluation."""
        if not self.writes:
            return
        self.best.mkdir(exist_ok=True)
        schema.write(self.best / MEASURED, measured.to_record())
        for path in (self.options_file, self.vocab_file, *self.path.glob(NGRAMS)):
            with replacing(self.best / path.name) as temporary:
                shutil.copyfile(path, temporary)

    def read_measured(self) -> Measurement | None:
        """Return the last evaluation; None if there was none or its record is damaged."""
        with suppress(OptionsError):
            return Measurement.from_record(schema.read_object(self.measured_file))
        return None

    def write_measured(self, measured: Measurement) -> None:
        """Store an evaluation for `read_measured`."""
        if self.writes:
            schema.write(self.measured_file, measured.to_record())

    # --- which checkpoint to use ---

    def log_end(self, step: int) -> Path:
        """Log the best checkpoint of a run that ended after `step` steps, the verdict on it and the
        command that exports it; return its folder."""
        measured = self.read_measured()
        best = self.find_best()
        chosen = self.path
        if measured and measured.step == step and best:
            if best.record.step != step:
                chosen = self.best
            lowest = f"perplexity {best.record.best:,.2f} at step {best.record.step:,}"
            last = f"{measured.perplexity} at step {step:,}"
            logging.info(
                "best on held-out text: %s (%s); the last: %s (%s)", lowest, self.best, last, self
            )
            judged = RunFolder(self.best).read_measured() or measured
            for line in judged.verdict.lines if judged.verdict else ():
                logging.info("%s", line)
        flags = f"--model={chosen}", f"--output={self.path}/export", "--include_softmax"
        logging.info("to export: %s", shlex.join(["bilm", "export", *flags]))
        return chosen


def _fixed_options(options: RunOptions) -> dict[str, Any]:
    """Return the options that a resumed run cannot change, as JSON values by name."""
    return options.model.to_dict() | {name: getattr(options, name) for name in FIXED}
