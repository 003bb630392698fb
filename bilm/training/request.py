"""What a user requests of a run: the arguments of `bilm.train` and `bilm.finetune`, checked."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from bilm.training.finetuning import Source

DEVICE_ARGUMENTS = ("gpus", "n_gpus", "cpu_replicas")  # of `make_strategy`


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the user requested of a run by the arguments of `bilm.train`; None for a default.

    Args:
        options: None to use those of a resumed run, or to let `auto` choose.
        requires_auto: whether the options `auto` were requested by their name.
        changes: options that replace others, by key.
        source: the model to fine-tune; None for other runs.
    """

    text: Shards
    heldout: Shards | None
    vocab: Vocabulary | Path | None
    options: RunOptions | None
    requires_auto: bool
    settings: RunSettings
    devices: Devices
    changes: Mapping[str, Any] = field(default_factory=dict)
    hours: float | None = None
    started: float = 0.0
    from_scratch: bool = False
    source: Source | None = None

    def __post_init__(self) -> None:
        if self.hours is not None and not 0 <= self.hours < math.inf:
            raise ArgumentError(f"hours is {self.hours}, expected a finite number of at least 0")
        if self.hours is not None and self.options is not None:
            raise ArgumentError(
                "--hours requires --options auto; the length of other runs is set with --n_epochs "
                "or --n_steps"
            )
        if self.hours is not None and self.settings.n_steps is not None:
            raise ArgumentError("--hours and --n_steps exclude each other")


def request_run(
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
) -> RunRequest:
    """Return the request that the arguments of `bilm.train` make; `others` are those without a name
    there. Files at URLs are downloaded, and TensorFlow's devices are selected. The `n_train_tokens`
    of a file of options is not used, because it belongs to another text. Raises: BilmError;
    TypeError for an unknown name."""
    unused = dict(others)
    settings = RunSettings(**_take(unused, _keys(RunSettings)))
    changes = _take(unused, _keys(RunOptions))
    of_strategy = _take(unused, DEVICE_ARGUMENTS)
    if unused:
        raise TypeError(f"unexpected keyword argument {min(unused)!r}")
    note_computing()
    if devices is not None and of_strategy:
        raise ArgumentError(f"{min(of_strategy)} and devices exclude each other")

    if isinstance(options, str | Path) and options != AUTO:
        options = load_run_options(options).replace(n_train_tokens=None)
    if isinstance(vocab, str | Path):
        vocab = Path(absolute(local_copy(vocab)))
    return RunRequest(
        text=_shards(text, settings),
        heldout=_shards(heldout, settings) if heldout else None,
        vocab=vocab,
        options=options if isinstance(options, RunOptions) else None,
        requires_auto=options == AUTO,
        settings=settings,
        devices=devices or Devices(make_strategy(**of_strategy)),
        changes=changes,
        hours=hours,
        started=time.monotonic() if started is None else started,
        from_scratch=from_scratch,
    )


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
