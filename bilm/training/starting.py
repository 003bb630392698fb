"""How a run starts: `new_run` and `resumed_run` return its `RunSpec`; for fine-tuning see
`bilm.training.finetuning`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from bilm.data.shards import Shards, resolve_shards
from bilm.data.stream import describe_shards
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import ArgumentError, DataError, OptionsError, WeightsError
from bilm.language_model import BiLM
from bilm.options import schema
from bilm.options.run_options import AUTO, RunOptions, load_run_options
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.finding.download import local_copy
from bilm.storage.run_record import AutoChoice, Finetuning
from bilm.storage.stored_model import open_model
from bilm.support.files import expanded
from bilm.support.urls import is_url
from bilm.training import auto
from bilm.training.devices import Devices, fastest_precision
from bilm.training.run_folder import RunFolder
from bilm.training.settings import RunSettings
from bilm.training.spec import RunSpec, Start, epoch_steps, evaluation_steps
from bilm.training.texts import (
    Inputs,
    RunTexts,
    check_same_text,
    check_words,
    count_again,
    count_new,
    read_texts,
)

NOT_FOR_WORKERS = (
    "--options auto cannot choose for several workers; expected a file or another name"
)


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the user requested of a run; None for a default.

    Args:
        text, heldout: the texts; None to measure the held-out part of the run, if it has one.
        vocab: the vocabulary, or its file; None for that of the run, or to make one.
        options: None for those of a resumed run, or for those that `auto` chooses.
        requires_auto: whether the options `auto` were requested by their name.
        changes: options that replace others, by key.
        hours: time budget, from the time `started` of the clock on.
        from_scratch: whether a new run of `auto` starts from random weights.
    """

    text: Shards
    heldout: Shards | None
    vocab: Vocabulary | Path | None
    options: RunOptions | None
    requires_auto: bool
    settings: RunSettings
    changes: Mapping[str, Any] = field(default_factory=dict)
    hours: float | None = None
    started: float = 0.0
    from_scratch: bool = False

    def __post_init__(self) -> None:
        if self.hours is not None and self.options is not None:
            raise ArgumentError(
                "--hours requires --options auto; the length of other runs is set with --n_epochs "
                "or --n_steps"
            )
        if self.hours is not None and self.settings.n_steps is not None:
            raise ArgumentError("--hours and --n_steps exclude each other")


def request_run(
    text: str | Path | Shards,
    heldout: str | Path | Shards | None,
    options: RunOptions | str | Path | None,
    vocab: Vocabulary | str | Path | None,
    settings: RunSettings,
    **others: Any,
) -> RunRequest:
    """Return the request of a run, with the files of its texts; `options` may be a file, the name
    of packaged options, or "auto". The `n_train_tokens` of a file is not used, because it belongs
    to another text. `others`: see `RunRequest`. Raises: BilmError."""
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
        **others,
    )


class EncoderStart(NamedTuple):
    """A new run with the character encoder of a packaged model; other weights are random."""

    name: str

    def assign(self, model: BiLM, vocab: Vocabulary) -> None:
        """Assign the weights of the encoder."""
        open_model(self.name).assign(model, softmax=False, stacks=False)


# --- the two kinds of runs on a text ---


def new_run(request: RunRequest, folder: RunFolder, devices: Devices) -> RunSpec:
    """Return a new run on a text, whose inputs are prepared in its folder. Raises: BilmError if one
    cannot be used."""
    options = request.options
    if devices.several_hosts and options is None:
        raise ArgumentError(NOT_FOR_WORKERS)
    if devices.several_hosts and request.vocab is None:
        raise ArgumentError("--vocab is required for several workers")

    inputs = prepare_inputs(request, folder, devices)
    check_words(inputs.vocab)

    # The options, if they do not depend on the text, and what the texts contain.
    n_train_tokens = request.changes.get("n_train_tokens")
    if options is not None:
        options = options.replace(**request.changes)
        n_train_tokens = options.n_train_tokens
        check_n_words(options, inputs.vocab)
    check_order = options is None or options.sample_softmax
    count = partial(count_new, n_train_tokens=n_train_tokens, check_order=check_order)
    texts = read_texts(inputs, devices.hosts, count)
    if options is not None:
        return specified(request, devices, texts, options)

    # What auto chooses.
    n_steps = request.settings.n_steps
    has_budget = request.hours is not None
    n_predictions = texts.facts.n_train_tokens
    options = auto.chosen(n_predictions, request.changes, n_steps, devices.n_replicas, has_budget)
    precision = request.settings.precision or fastest_precision(devices, options)
    encoder = None if request.from_scratch else auto.ENCODER
    choice = AutoChoice(n_steps, precision, request.hours, encoder)
    _log_choice(options, choice)
    start = EncoderStart(encoder) if encoder else None
    return specified(request, devices, texts, options, choice=choice, start=start)


def resumed_run(
    request: RunRequest, folder: RunFolder, devices: Devices, checkpoint: Checkpoint
) -> RunSpec:
    """Return the run that continues a checkpoint. Raises: BilmError if an input cannot be used, or
    if it differs from that of the run in the folder."""
    record = checkpoint.record
    is_auto = request.options is None and record.auto is not None
    if devices.several_hosts and is_auto:
        raise ArgumentError(NOT_FOR_WORKERS)
    if record.auto is None and (request.requires_auto or request.hours is not None):
        raise OptionsError(
            f"{folder}: contains a run whose options were not chosen by auto; omit --options and "
            "--hours to resume it, or use another folder"
        )
    if request.settings.seed != record.seed:  # the order of the text would differ
        raise WeightsError(
            f"{checkpoint.path}: saved with seed {record.seed}, not {request.settings.seed}"
        )

    # The options of the run, with the requested changes.
    stored = schema.read(RunOptions, record.options)
    options = (request.options or stored).replace(**request.changes)
    folder.check_same_options(stored, options)

    # The texts and the vocabulary, which must be the same.
    inputs = open_inputs(request, folder)
    if inputs.vocab.digest != record.vocabulary:
        raise DataError(
            f"{folder.vocab_file}: the vocabulary of this folder's run differs from "
            f"{inputs.vocab.filename}"
        )
    check_same_text(inputs.text, record, folder.heldout_file)
    count = partial(count_again, record=record, n_train_tokens=options.n_train_tokens)
    texts = read_texts(inputs, devices.hosts, count)

    # The rows, which the replicas share.
    n_rows = _rows_of(checkpoint, options.batch_size, devices.n_replicas)
    options = options.replace(batch_size=record.batch_size)
    folder.log_changes(options, record)

    choice = None
    if is_auto and record.auto is not None:
        choice = _choice_again(request, record.auto, options.n_epochs == stored.n_epochs)
    return specified(request, devices, texts, options, n_rows, choice, finetuning=record.finetuning)


def specified(
    request: RunRequest,
    devices: Devices,
    texts: RunTexts,
    options: RunOptions,
    n_rows: int | None = None,
    choice: AutoChoice | None = None,
    start: Start | None = None,
    finetuning: Finetuning | None = None,
) -> RunSpec:
    """Return the run with these options, whose sizes and length follow from its texts; `n_rows`:
    None for `batch_size` per replica."""
    inputs, facts, ngrams = texts
    words = inputs.vocab.words  # the options decide whether they are spelled
    vocab = vocabulary_of(inputs.vocab.filename, options.model, n_tokens=None, words=words)
    options = options.replace(
        n_train_tokens=facts.n_train_tokens, n_tokens_vocab=vocab.size, once_from=facts.once_from
    )

    # The length: by the request or by epochs, until the pace of a run with a time budget is known.
    n_rows = n_rows or options.batch_size * devices.n_replicas
    settings = request.settings
    requested = choice.n_steps if choice else settings.n_steps
    n_steps = requested or options.n_epochs * epoch_steps(options, n_rows)
    deadline = math.inf
    if choice is not None:
        settings = settings.replace(precision=choice.precision)
        if choice.hours is not None and choice.n_steps is None:
            deadline = request.started + 3600 * choice.hours
        else:
            choice = choice.replace(n_steps=n_steps)
    spec = RunSpec(
        options=options,
        n_rows=n_rows,
        vocab=vocab,
        text=inputs.text,
        text_files=describe_shards(inputs.text.paths),
        ngrams=ngrams,
        heldout=texts.heldout,
        n_steps=n_steps,
        eval_steps=settings.eval_steps or evaluation_steps(options, n_rows, facts.n_heldout),
        settings=settings,
        start=start,
        auto=choice,
        finetuning=finetuning,
        deadline=deadline,
    )
    if options.sample_softmax and not spec.is_sampled:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, vocab.size,
        )  # fmt: skip
    return spec


# --- texts and vocabulary ---


def prepare_inputs(request: RunRequest, folder: RunFolder, devices: Devices) -> Inputs:
    """Make the vocabulary of a new run in its folder if none was requested, and hold out a part of
    the text if neither was; open the inputs. Raises: DataError."""
    makes_vocab = request.vocab is None
    holds_out = makes_vocab and request.heldout is None
    make_inputs = partial(folder.make_inputs, request.text, makes_vocab, holds_out)
    devices.hosts.from_chief("inputs", make_inputs)
    return open_inputs(request, folder)


def open_inputs(request: RunRequest, folder: RunFolder) -> Inputs:
    """Open the texts and the vocabulary that were requested, or those in the folder of the run.
    Raises: DataError; ArgumentError if the run lacks its vocabulary."""
    vocab = request.vocab or folder.vocab_file
    if request.vocab is None and not folder.vocab_file.is_file():
        raise ArgumentError(f"--vocab is required: {vocab} does not exist any more")
    if isinstance(vocab, Path):
        vocab = Vocabulary(vocab, validate_file=True)
    heldout = request.heldout
    if heldout is None and folder.heldout_file.is_file():
        heldout = resolve_shards(folder.heldout_file, request.settings.on_bad_utf8)
    return Inputs(folder.training_part(request.text), heldout, vocab)


def check_n_words(options: RunOptions, vocab: Vocabulary) -> None:
    """Raise OptionsError if the options have another number of words than the vocabulary."""
    if options.n_tokens_vocab not in (None, vocab.size):
        raise schema.unexpected(
            f"{options.file}n_tokens_vocab",
            options.n_tokens_vocab,
            f"{vocab.size}, the number of words of {vocab.filename}, or no such key",
        )


def absolute(path: str | Path) -> str:
    """Return a path that stays the same if the program changes its working folder."""
    return os.fspath(path) if is_url(path) else os.path.abspath(expanded(path))


def _shards(text: str | Path | Shards, settings: RunSettings) -> Shards:
    pattern = text if isinstance(text, Shards) else absolute(text)
    return resolve_shards(pattern, settings.on_bad_utf8)


# --- auto ---


def _log_choice(options: RunOptions, choice: AutoChoice) -> None:
    n_predictions = options.n_train_tokens or 0
    keys = dict.fromkeys([*auto.recipe_for(n_predictions).changes, "learning_rate"])
    encoder = choice.encoder
    logging.info(
        "auto: %s predictions per epoch and direction: options %s; %s; at most %d epochs, in %s%s",
        f"{n_predictions:,}",
        ", ".join([auto.BASE, *(f"{key}={getattr(options, key)}" for key in keys)]),
        f"starts from the character encoder of {encoder}" if encoder else "starts from scratch",
        options.n_epochs,
        choice.precision,
        "; its first steps determine length, regularization and rate" if choice.hours else "",
    )


def _choice_again(request: RunRequest, stored: AutoChoice, keeps_epochs: bool) -> AutoChoice:
    """Return the choice of a resumed run, which keeps its length unless `n_steps` or another
    `n_epochs` is requested."""
    n_steps = request.settings.n_steps or (stored.n_steps if keeps_epochs else None)
    if request.hours is not None and n_steps is not None:
        logging.info("auto: a resumed run keeps its length; --hours is for new runs")
    if request.from_scratch:
        logging.info("auto: a resumed run keeps its first weights; --from_scratch is for new runs")
    precision = request.settings.precision or stored.precision
    return stored.replace(n_steps=n_steps, hours=request.hours, precision=precision)


# --- rows ---


def _rows_of(checkpoint: Checkpoint, batch_size: int, n_replicas: int) -> int:
    """Return the number of rows of a checkpoint. Raises: WeightsError if the number of replicas
    does not divide it, or if another `batch_size` was requested."""
    n_rows = checkpoint.record.n_rows
    requested = batch_size * n_replicas
    if n_rows == requested:
        return n_rows
    if batch_size != checkpoint.record.batch_size:
        raise WeightsError(
            f"{checkpoint.path}: saved with {n_rows} rows, but this run has "
            f"{requested} (batch_size times replicas)"
        )
    if n_rows % n_replicas:
        raise WeightsError(
            f"{checkpoint.path}: its {n_rows} rows cannot be shared by {n_replicas} "
            "replicas; expected a number of replicas that divides them"
        )
    logging.info(
        "the run's %d rows are now shared by %d replicas x %d rows",
        n_rows, n_replicas, n_rows // n_replicas,
    )  # fmt: skip
    return n_rows
