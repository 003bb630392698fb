"""What a user requests of a run: the arguments of `bilm.train` and `bilm.finetune`, checked."""

import math
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bilm.data.shards import Shards, TextFiles, resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import ArgumentError
from bilm.options import schema
from bilm.options.run_options import AUTO, RunOptions, load_run_options
from bilm.storage.finding.download import local_copy
from bilm.support.files import expanded
from bilm.support.process import note_computing
from bilm.support.urls import PathLike, is_url
from bilm.training.devices import Devices, make_strategy
from bilm.training.settings import RunSettings
from bilm.training.source import Source

DEVICE_ARGUMENTS = ("gpus", "n_gpus", "cpu_replicas")  # of `make_strategy`


class RunRequest:
    """What the user requested of a run by the arguments of `bilm.train`, which are its attributes;
    None for a default. Files at URLs are downloaded, and TensorFlow's devices are selected.

    Args:
        others: arguments without a name in `bilm.train`: `settings`, options that replace others,
            the attribute `changes`, and arguments of `make_strategy`.
        options: None to take them from a resumed run or `source`, or to let `auto` choose. The
            `n_train_tokens` of a file is not used, because it belongs to another text.
        source: the model to fine-tune; None for other runs.
    Attributes: `requires_auto`, whether the options `auto` were requested by their name.
    Raises: BilmError; TypeError for an unknown name.
    """

    def __init__(
        self,
        text: TextFiles,
        others: Mapping[str, Any],
        *,
        heldout: TextFiles | None = None,
        vocab: Vocabulary | str | Path | None = None,
        options: RunOptions | str | Path | None = None,
        hours: float | None = None,
        from_scratch: bool = False,
        devices: Devices | None = None,
        started: float | None = None,
        source: Source | None = None,
    ):
        unused = dict(others)
        self.settings = RunSettings(**_take(unused, _keys(RunSettings)))
        self.changes = _take(unused, _keys(RunOptions))
        of_strategy = _take(unused, DEVICE_ARGUMENTS)
        if unused:
            raise TypeError(f"unexpected keyword argument {min(unused)!r}")
        note_computing()
        if devices is not None and of_strategy:
            raise ArgumentError(f"{min(of_strategy)} and devices exclude each other")

        self.requires_auto = options == AUTO
        self.options: RunOptions | None = None
        self.source = source
        if source is not None:
            self.options = source.run_options(self.changes)
            self.changes = {}
        elif isinstance(options, RunOptions):
            self.options = options
        elif options is not None and not self.requires_auto:
            self.options = load_run_options(options).replace(n_train_tokens=None)
        if isinstance(vocab, str | Path):
            vocab = Path(absolute(local_copy(vocab)))
        self.vocab = vocab
        self.text = _shards(text, self.settings)
        self.heldout = _shards(heldout, self.settings) if heldout else None
        self.devices = devices or Devices(make_strategy(**of_strategy))
        self.from_scratch = from_scratch
        self.hours = hours
        self.started = time.monotonic() if started is None else started
        if hours is None:
            return
        if not 0 <= hours < math.inf:
            raise ArgumentError(f"hours is {hours}, expected a finite number of at least 0")
        if self.options is not None:
            raise ArgumentError(
                "--hours requires --options auto; the length of other runs is set with --n_epochs "
                "or --n_steps"
            )
        if self.settings.n_steps is not None:
            raise ArgumentError("--hours and --n_steps exclude each other")


def absolute(path: PathLike) -> str:
    """Return a path that stays the same if the program changes its working folder."""
    return os.fspath(path) if is_url(path) else os.path.abspath(expanded(path))


def _take(values: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Remove the values with these names, and return them."""
    return {name: values.pop(name) for name in names if name in values}


def _keys(kind: type) -> list[str]:
    return [field.name for field in schema.keys(kind)]


def _shards(text: TextFiles, settings: RunSettings) -> Shards:
    pattern = text if isinstance(text, Shards) else absolute(text)
    return resolve_shards(pattern, settings.on_bad_utf8)
