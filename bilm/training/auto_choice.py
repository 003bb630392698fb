"""What `--options auto` chooses: for a new run by its text and this machine, else by its record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from bilm.data.shards import count_tokens, resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.run_options import RunOptions
from bilm.storage.run_record import RunRecord
from bilm.support.probes import ProbeFailure
from bilm.training import auto, timing
from bilm.training.auto import Choice
from bilm.training.survey import Survey, survey


class Request(NamedTuple):
    """The settings that the user has requested.

    Fields:
        changes: options of the run that replace those chosen.
        n_train_tokens: predictions per epoch and direction; None counts them.
        hours: time of the run; None for as long as training is useful.
        n_steps, precision: length and precision; None to choose them.
        eval_steps: steps between evaluations; None for an epoch.
    """

    changes: Mapping[str, Any]
    n_train_tokens: int | None
    hours: float | None
    n_steps: int | None
    precision: str | None
    eval_steps: int | None


def resumed(record: RunRecord, request: Request) -> tuple[RunOptions, Choice]:
    """Return the options, length and precision of a run that auto chose."""
    assert record.auto is not None
    if request.hours:
        logging.info("auto: a resumed run keeps its length; --hours is for new runs")
    options = schema.read(RunOptions, record.options, strict=False)
    if request.n_train_tokens is not None:
        options = options.replace(n_train_tokens=request.n_train_tokens)
    choice = auto.resumed(record.auto, options, request.changes, request.n_steps, request.precision)
    return options.replace(**request.changes), choice


def chosen(
    text: str,
    heldout: str | None,
    vocab_file: Path,
    on_bad_utf8: str,
    request: Request,
    devices: Mapping[str, Any],
    n_replicas: int,
    started: float,
) -> tuple[RunOptions, Choice, Survey | None]:
    """Return the options, length and precision that are best for a text on this machine, and what
    is known of the text if it was read.

    Args:
        text, heldout: patterns of the training text and of the held-out text.
        vocab_file, on_bad_utf8: the vocabulary, and how to read the texts: see `resolve_shards`.
        devices: arguments of `make_strategy`.
        n_replicas: number of replicas that they give.
        started: `time.monotonic()` at which the command started.
    Raises: BilmError if an input cannot be used.
    """
    # Options by the length of the text.
    logging.info("auto: counting the text, then timing training steps on this machine")
    n_predictions, known = request.n_train_tokens, None
    if n_predictions is None:
        shards = resolve_shards(text, on_bad_utf8)
        known = survey(shards, Vocabulary(vocab_file, validate_file=True))
        n_predictions = known.counts.n_predictions
    options = auto.options_for(n_predictions).replace(**request.changes)

    # Length and precision by the time of a step, and by the time that evaluations need.
    try:
        step_seconds = timing.measure(
            options, text, vocab_file, on_bad_utf8, request.precision, devices
        )
    except ProbeFailure as error:
        raise OptionsError(
            f"auto: the speed of training cannot be measured here: {error}; choose a size with "
            "--options"
        ) from None
    n_heldout = 0
    if heldout:
        n_heldout = count_tokens(resolve_shards(heldout, on_bad_utf8)).n_predictions
    choice = auto.choose(
        options,
        step_seconds,
        hours=request.hours,
        n_steps=request.n_steps,
        spent=time.monotonic() - started,
        n_replicas=n_replicas,
        n_heldout=n_heldout,
        eval_steps=request.eval_steps,
    )

    if "warmup_steps" not in request.changes:
        options = auto.with_warmup(options, choice.n_steps or 0)
    for line in auto.describe(options, choice, step_seconds, n_replicas):
        logging.info("auto: %s", line)
    return options, choice, known
