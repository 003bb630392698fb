"""The folder of a run: what is in it, who may write to it, and which run it belongs to."""

from __future__ import annotations

import filecmp
import os
import shlex
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import logging

from bilm import schema
from bilm.data.bidirectional import Reader
from bilm.data.stream import describe_part
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.evaluation import Perplexity
from bilm.files import expanded, replacing
from bilm.options import CHANGEABLE, RunOptions, load_model_options, write_options
from bilm.storage.checkpoint import OPTIONS, VOCABULARY
from bilm.storage.checkpoint_folder import check_name, holds_checkpoint, remove_unfinished
from bilm.training.saved import Saved, find_saved

try:
    import fcntl
except ImportError as error:  # Windows
    raise BilmError("training runs on Linux and macOS; this system cannot lock a folder") from error

RESUME = ("auto", "never", "must")


class RunFolder:
    """A run's folder: it knows the names of all files, and every write to them goes through it.

    The checkpoints in it, and in `best`, are those of `bilm.storage.checkpoint_folder`.

    Args:
        path: the folder, which need not exist.
        writes: False where another process writes the files of this run; all writes do nothing.
    Attributes: `best`, the folder of the checkpoint that was best on held-out text; `logs`, that of
        TensorBoard; `export`, that of the files which readers of ELMo load; and the `*_file`s.
    """

    def __init__(self, path: str | Path, writes: bool = True):
        self.path, self.writes = Path(expanded(path)), writes
        self.best, self.logs, self.export = (self.path / k for k in ("best", "logs", "export"))
        self.options_file, self.vocab_file = self.path / OPTIONS, self.path / VOCABULARY
        self.measured_file = self.path / "heldout.json"
        self.tuning_file = self.path / "finetuning.json"
        self.lock_file = self.path / ".lock"

    def __str__(self) -> str:
        return str(self.path)

    # --- whether it can be written to ---

    def check_usable(self) -> None:
        """Refuse what cannot become or be the folder of a run, before anything is written.

        Raises: BilmError, naming the path.
        """
        check_name(self.path)
        for path in (self.path, self.logs, self.best):
            if path.exists() and not path.is_dir():
                raise BilmError(f"{path}: is a file; expected a folder, or nothing")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the folder to this process, which makes it; the lock dies with the process.

        Raises: BilmError, naming the folder and the process, if another one holds it.
        """
        if not self.writes:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        # Opened to append: until the lock is ours, the content is another's.
        with open(self.lock_file, "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read(200).strip() or "another process"
                raise BilmError(f"{self}: {holder} is training in this folder") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            for folder in (self.path, self.best):
                remove_unfinished(folder)
            yield

    # --- which run it belongs to ---

    @property
    def holds_run(self) -> bool:
        """Whether it holds any checkpoint, whole or not."""
        return holds_checkpoint(self.path)

    def check_resume(self, resume: str) -> None:
        """Compare what the folder holds with what was requested.

        Args:
            resume: "auto", "never" to refuse a folder with a run, "must" to refuse one without.
        Raises: BilmError, naming the folder.
        """
        if resume not in RESUME:
            raise BilmError(f"resume={resume}: expected one of {', '.join(RESUME)}")
        there = self.holds_run
        if resume == "never" and there:
            raise BilmError(f"{self}: holds a run; give another folder, or continue: --resume=auto")
        if resume == "must" and not there:
            raise BilmError(f"{self}: holds no checkpoint of a run that could be continued")

    def check_same_run(self, options: RunOptions, vocab_file: str | Path) -> None:
        """Refuse a folder that holds another run, or files that a run would overwrite.

        Raises: OptionsError or DataError, naming what differs.
        """
        if not self.holds_run:
            self._check_unused()
            return
        path = self.options_file
        there = load_model_options(path) if path.exists() else options.model
        found = schema.difference(there, options.model)
        # With others, the position in the text would be another, or the slots.
        optimizer = "adagrad" if path.exists() else options.optimizer
        for name, default in (("unroll_steps", options.unroll_steps), ("optimizer", optimizer)):
            found = found or schema.difference(
                there.other.get(name, default), getattr(options, name), name
            )
        if found:
            name, old, new = found
            raise OptionsError(
                f"{path}: {name} is {old} in this folder's run, but {new} was requested"
            )
        path = self.vocab_file
        if path.exists() and not filecmp.cmp(path, vocab_file, shallow=False):
            raise DataError(f"{path}: this folder's run has another vocabulary than {vocab_file}")

    def _check_unused(self) -> None:
        """Refuse files of somebody else's.

        A run that died before its first save has left its lock; it may be overwritten.
        """
        if self.lock_file.exists():
            return
        for path in (self.options_file, self.vocab_file):
            if path.exists():
                raise BilmError(
                    f"{path}: is there, but no run is; training would overwrite it, so give "
                    "another folder"
                )

    def log_changes(self, options: RunOptions) -> None:
        """Log which options of training differ from those that the run had so far."""
        stored = self.stored_options()
        for name in CHANGEABLE:
            new = getattr(options, name)
            if name in stored and stored[name] != new:
                logging.warning(
                    "%s: %s was %s so far, and is %s from here",
                    self.options_file, name, stored[name], new,
                )  # fmt: skip

    def stored_options_file(self) -> Path | None:
        """Return the options file of the folder's run; None without a run."""
        return self.options_file if self.holds_run and self.options_file.exists() else None

    def stored_options(self) -> Mapping[str, Any]:
        """Return the options of training that the folder's run has stored; empty without a run."""
        path = self.stored_options_file()
        return {} if path is None else load_model_options(path).other

    def find_saved(self) -> Saved | None:
        """Find the latest whole checkpoint: see `bilm.training.saved.find_saved`."""
        return find_saved(self.path)

    def find_best(self) -> Saved | None:
        """Find the whole checkpoint that was best on held-out text; None if there is none."""
        try:
            return find_saved(self.best)
        except WeightsError as error:
            logging.warning("%s", error)
            return None

    # --- what is written beside the checkpoints ---

    def write_inputs(self, options: RunOptions, vocab_file: str | Path) -> None:
        """Write the options, and put the vocabulary beside them."""
        if self.writes:
            write_options(self.options_file, options.to_dict())
            _copy(Path(vocab_file), self.vocab_file)

    def copy_inputs_to_best(self) -> None:
        """Copy both into `best`, so that it can be measured and exported on its own."""
        for path in (self.options_file, self.vocab_file):
            if self.writes and path.exists():
                _copy(path, self.best / path.name)

    def read_measured(self) -> tuple[int, Perplexity] | None:
        """Return the step at which held-out text was last measured, and what was found."""
        path = self.measured_file
        if not path.exists():
            return None
        try:
            values = schema.read_object(path)
            step = values.pop("step", None)
            if not isinstance(step, int):
                raise schema.unexpected("step", step, "an integer")
            return step, Perplexity.from_record(values)
        except OptionsError as error:
            message = str(error).removeprefix(f"{path}: ")
            logging.warning("%s: not the record of a measurement (%s); ignored", path, message)
            return None

    def measured_another(self, heldout: Reader) -> bool:
        """Return whether what was last measured is another text than this, and say so."""
        if self.read_measured() is None:
            return False
        text = describe_part(heldout.shards)
        before = schema.read_object(self.measured_file).get("text", text)  # older ones do not say
        if before != text:
            logging.warning(
                "%s: the held-out text was %s so far, and is %s from here; what is best starts "
                "anew", self.measured_file, before, text,
            )  # fmt: skip
        return before != text

    def write_measured(
        self, step: int, perplexity: Perplexity, part: Perplexity, heldout: Reader
    ) -> None:
        """Store what `read_measured` returns, and what the part that chooses `best` gave."""
        if self.writes:
            more = {"part_mean": part.mean, "text": describe_part(heldout.shards)}
            schema.write(self.measured_file, {"step": step, **perplexity._asdict(), **more})

    def _read_compared(self) -> tuple[int, float] | None:
        """Return the step of the last measurement and what it has in common with `best`."""
        measured = self.read_measured()
        if measured is None:
            return None
        part = schema.read_object(self.measured_file).get("part_mean")
        return measured[0], part if isinstance(part, float) else measured[1].mean

    def write_tuning(self, record: Mapping[str, Any]) -> None:
        """Store the record of a fine-tuning."""
        if self.writes:
            schema.write(self.tuning_file, record)

    # --- what to do with it ---

    def log_end(self, step: int) -> None:
        """Log which checkpoint of a run that ended after `step` steps to export, and how."""
        measured, best, source = self._read_compared(), self.find_best(), self.path
        if measured and measured[0] == step and best:
            last = measured[1]
            source = self.path if best.step == step else self.best
            logging.info(
                "best on held-out text: perplexity %s at step %s (%s); the last: %s at step %s "
                "(%s)",
                f"{best.best:,.2f}", f"{best.step:,}", self.best,
                f"{last:,.2f}", f"{step:,}", self,
            )  # fmt: skip
        flags = f"--model={source}", f"--output={self.export / 'weights.hdf5'}"
        logging.info("to export: %s", shlex.join(["bilm", "export", *flags]))

    def warn_of_better(self) -> None:
        """Warn where `best` is better than the latest checkpoint, which is what is read."""
        measured, best = self._read_compared(), self.find_best()
        if measured and best and best.step != measured[0] and best.best < measured[1]:
            logging.warning(
                "%s: the latest checkpoint is used; held out, %s was better: perplexity %s at step "
                "%s against %s at step %s (--model %s)",
                self, self.best, f"{best.best:,.2f}", f"{best.step:,}",
                f"{measured[1]:,.2f}", f"{measured[0]:,}", shlex.quote(str(self.best)),
            )  # fmt: skip


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
