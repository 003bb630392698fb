"""The folder of a run: who may write to it, and which run it belongs to."""

from __future__ import annotations

import filecmp
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import logging

from bilm import schema
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.evaluation import Perplexity
from bilm.files import expanded
from bilm.options import RunOptions, load_model_options
from bilm.storage.checkpoint import OPTIONS, VOCABULARY
from bilm.storage.checkpoint_folder import check_name, holds_checkpoint, remove_unfinished
from bilm.training.report import LOGS
from bilm.training.saved import BEST, Saved, find_best

try:
    import fcntl
except ImportError as error:  # Windows
    raise BilmError("training runs on Linux and macOS; this system cannot lock a folder") from error

LOCK = ".lock"
MEASURED = "heldout.json"
EXPORT = "export"  # a folder in the run's, for the files that readers of ELMo load
CHANGEABLE = (
    "dropout",
    "all_clip_norm_val",
    "learning_rate",
    "n_negative_samples_batch",
    "sample_softmax",
    "state_reset_probability",
)
RESUME = ("auto", "never", "must")


def check_folder(save_dir: str | Path) -> None:
    """Refuse what cannot become or be the folder of a run, before anything is written.

    Raises: BilmError, naming the path.
    """
    check_name(save_dir)
    folder = Path(save_dir)
    for path in (folder, folder / LOGS, folder / BEST):
        if path.exists() and not path.is_dir():
            raise BilmError(f"{path}: is a file; expected a folder, or nothing")


@contextmanager
def locked(save_dir: str | Path) -> Iterator[None]:
    """Keep the folder to this process, which makes it; the lock dies with the process.

    Raises: BilmError, naming the folder and the process, if another one holds it.
    """
    folder = Path(save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+", encoding="utf-8") as file:  # its bytes are another's until ours
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).strip() or "another process"
            raise BilmError(f"{folder}: {holder} is training in this folder") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        for place in (folder, folder / BEST):
            remove_unfinished(place)
        yield


def check_resume(save_dir: str | Path, resume: str) -> None:
    """Compare what the folder holds with what was requested.

    Args:
        resume: "auto", "never" to refuse a folder with a run, "must" to refuse one without.
    Raises: BilmError, naming the folder.
    """
    if resume not in RESUME:
        raise BilmError(f"resume={resume}: expected one of {', '.join(RESUME)}")
    there = holds_checkpoint(save_dir)
    if resume == "never" and there:
        raise BilmError(f"{save_dir}: holds a run; give another folder, or continue: --resume=auto")
    if resume == "must" and not there:
        raise BilmError(f"{save_dir}: holds no checkpoint of a run that could be continued")


def check_same_run(save_dir: str | Path, options: RunOptions, vocab_file: str) -> None:
    """Refuse a folder that holds another run.

    Raises: OptionsError or DataError, naming what differs.
    """
    if not holds_checkpoint(save_dir):
        _check_unused(Path(save_dir))
        return
    path = Path(save_dir) / OPTIONS
    there = load_model_options(path) if path.exists() else options.model
    found = _difference(there, options.model)
    unroll_steps = there.other.get("unroll_steps", options.unroll_steps)
    if not found and unroll_steps != options.unroll_steps:  # the place in the text would be another
        found = "unroll_steps", unroll_steps, options.unroll_steps
    if found:
        name, old, new = found
        raise OptionsError(f"{path}: {name} is {old} in this folder's run, but {new} was requested")
    path = Path(save_dir) / VOCABULARY
    if path.exists() and not filecmp.cmp(path, vocab_file, shallow=False):
        raise DataError(f"{path}: this folder's run has another vocabulary than {vocab_file}")


def _check_unused(folder: Path) -> None:
    """Refuse a folder with files of somebody else's that a run would overwrite.

    A run that died before its first save has left its lock; it may be overwritten.
    """
    if (folder / LOCK).exists():
        return
    for name in (OPTIONS, VOCABULARY):
        if (folder / name).exists():
            raise BilmError(
                f"{folder / name}: is there, but no run is; training would overwrite it, so give "
                "another folder"
            )


def tell_changes(save_dir: str | Path, options: RunOptions) -> None:
    """Say on the log which options of training differ from those that the run had so far."""
    path = Path(save_dir) / OPTIONS
    there = load_model_options(path).other if path.exists() else {}
    for name in CHANGEABLE:
        new = getattr(options, name)
        if name in there and there[name] != new:
            logging.warning(
                "%s: %s was %s so far, and is %s from here", path, name, there[name], new
            )


def read_measured(save_dir: str | Path) -> tuple[int, Perplexity] | None:
    """Return the step at which held-out text was last measured, and what was found."""
    path = Path(save_dir) / MEASURED
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


def write_measured(save_dir: str | Path, step: int, perplexity: Perplexity) -> None:
    """Store what `read_measured` gives."""
    schema.write(Path(save_dir) / MEASURED, {"step": step, **perplexity._asdict()})


def tell_end(save_dir: str | Path, step: int) -> None:
    """Say on the log which checkpoint is best on held-out text, and how to export it.

    Args:
        save_dir: the folder of a run that is finished.
        step: its last.
    """
    measured, best = read_measured(save_dir), find_best(save_dir)
    source = save_dir
    if measured and measured[0] == step and best:
        last = measured[1].mean
        source = save_dir if best.step == step else Path(save_dir) / BEST
        logging.info(
            "best on held-out text: perplexity %s at step %s (%s); the last: %s at step %s (%s)",
            f"{best.best:,.2f}", f"{best.step:,}", Path(save_dir) / BEST,
            f"{last:,.2f}", f"{step:,}", save_dir,
        )  # fmt: skip
    logging.info("to export: %s", export_command(source, Path(save_dir) / EXPORT))


def warn_of_better(save_dir: str | Path) -> None:
    """Warn where `best` is better than the latest checkpoint, which is what is read."""
    measured, best = read_measured(save_dir), find_best(save_dir)
    if measured and best and best.step != measured[0] and best.best < measured[1].mean:
        folder = Path(save_dir) / BEST
        logging.warning(
            "%s: the latest checkpoint is used; held out, %s was better: perplexity %s at step %s "
            "against %s at step %s (--model %s)",
            save_dir, folder, f"{best.best:,.2f}", f"{best.step:,}",
            f"{measured[1].mean:,.2f}", f"{measured[0]:,}", shlex.quote(str(folder)),
        )  # fmt: skip


def export_command(save_dir: str | Path, folder: Path) -> str:
    """Return the command line that exports a run to a folder."""
    return shlex.join(
        ["bilm", "export", f"--model={save_dir}", f"--output={folder / 'weights.hdf5'}"]
    )


def share_rows(options: RunOptions, saved: Saved | None, n_replicas: int) -> RunOptions:
    """Return the options with the rows of the run that is continued shared by all replicas.

    Raises: WeightsError if they cannot be shared, or if another number was requested.
    """
    if saved is None or options.batch_size * n_replicas == saved.n_rows:
        return options
    if options.batch_size != saved.batch_size:
        asked = options.batch_size * n_replicas
        raise WeightsError(
            f"{saved.path}: saved with {saved.n_rows} rows, but this run has {asked}, which is "
            "batch_size times replicas"
        )
    batch_size, left = divmod(saved.n_rows, n_replicas)
    if left:
        raise WeightsError(
            f"{saved.path}: its {saved.n_rows} rows cannot be shared by {n_replicas} replicas; "
            "expected a number of replicas that divides them"
        )
    logging.info(
        "the run's %d rows are shared anew: %d replicas x %d rows",
        saved.n_rows, n_replicas, batch_size,
    )  # fmt: skip
    return options.replace(batch_size=batch_size)


def stored_options(save_dir: str | Path) -> Path | None:
    """Return the options file of the run that a folder holds; None where it holds none."""
    path = Path(expanded(save_dir)) / OPTIONS
    return path if holds_checkpoint(path.parent) and path.exists() else None


def stored_option(save_dir: str | Path, name: str) -> Any:
    """Return what the folder's run has stored for an option, None where it has no checkpoint."""
    path = Path(save_dir) / OPTIONS
    if not (holds_checkpoint(save_dir) and path.exists()):
        return None
    return load_model_options(path).other.get(name)


def _difference(old: Any, new: Any, name: str = "") -> tuple[str, object, object] | None:
    """Return the dotted name and the values of the first key in which two options differ."""
    if not (isinstance(old, schema.Checked) and isinstance(new, schema.Checked)):
        return None if old == new else (name, old, new)
    names = (field.name for field in schema.keys(old))
    pairs = ((getattr(old, k), getattr(new, k), f"{name}.{k}".lstrip(".")) for k in names)
    return next(filter(None, (_difference(*pair) for pair in pairs)), None)
