"""How a run starts: `new_run` and `resumed_run` return its `RunSpec`."""

import math
from dataclasses import replace
from functools import partial

from absl import logging

from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.errors import ArgumentError, OptionsError, WeightsError
from bilm.language_model import BiLM
from bilm.options.run_options import RunOptions
from bilm.storage.checkpoint import Checkpoint
from bilm.storage.run_record import AutoChoice, Finetuning
from bilm.storage.stored_model import open_model
from bilm.training import auto
from bilm.training.devices import fastest_precision
from bilm.training.request import RunRequest
from bilm.training.run_folder import RunFolder
from bilm.training.spec import RunSpec, RunTexts, epoch_steps, evaluation_steps
from bilm.training.texts import new_texts, same_texts

NOT_FOR_WORKERS = (
    "--options auto cannot choose for several workers; expected a file or another name"
)


def assign_encoder(name: str, model: BiLM, vocab: Vocabulary) -> None:
    """Assign the weights of the character encoder of a packaged model; others stay random."""
    open_model(name).assign(model, softmax=False, stacks=False)


def new_run(request: RunRequest, folder: RunFolder) -> RunSpec:
    """Return a new run, whose inputs are prepared in its folder. Raises: BilmError."""
    devices = request.devices
    options = request.options
    if devices.several_hosts and options is None:
        raise ArgumentError(NOT_FOR_WORKERS)
    if devices.several_hosts and request.vocab is None:
        raise ArgumentError("--vocab is required for several workers")
    if options is not None:
        options = options.replace(**request.changes)
    texts = new_texts(request, folder, options)
    if options is not None:
        spec = specified(request, texts, options)
        source = request.source
        if source is None:
            return spec
        files = texts.heldout.files.text if texts.heldout else None
        return replace(spec, start=source.assign, finetuning=Finetuning(source.id, text=files))

    # What auto chooses.
    n_steps = request.settings.n_steps
    has_budget = request.hours is not None
    n_predictions = texts.n_train_tokens
    options = auto.chosen(n_predictions, request.changes, n_steps, devices.n_replicas, has_budget)
    precision = request.settings.precision or fastest_precision(devices, options)
    encoder = None if request.from_scratch else auto.ENCODER
    choice = AutoChoice(n_steps, precision, request.hours, encoder)
    _log_choice(options, choice)
    start = partial(assign_encoder, encoder) if encoder else None
    return replace(specified(request, texts, options, choice=choice), start=start)


def resumed_run(request: RunRequest, folder: RunFolder, checkpoint: Checkpoint) -> RunSpec:
    """Return the run that continues a checkpoint. Raises: BilmError, also for other inputs."""
    record = checkpoint.record
    if request.source is not None:
        request.source.check_same(folder, record.finetuning)
    of_auto = record.auto if request.options is None else None
    if request.devices.several_hosts and of_auto is not None:
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
    stored = RunOptions.from_dict(record.options, strict=False)
    options = (request.options or stored).replace(**request.changes)
    folder.check_options(stored, options)
    texts = same_texts(request, folder, record, options.n_train_tokens)

    # The rows, which the replicas share.
    n_rows = _rows_of(checkpoint, stored, options, request.devices.n_replicas)
    options = options.replace(batch_size=stored.batch_size)

    keeps_epochs = options.n_epochs == stored.n_epochs
    choice = of_auto and _choice_again(request, of_auto, keeps_epochs)
    spec = specified(request, texts, options, n_rows, choice)
    spec = replace(spec, finetuning=record.finetuning)
    heldout = texts.heldout
    is_measured = spec.finetuning is not None and spec.finetuning.before is not None
    if heldout is not None and is_measured and spec.start_perplexity is None:
        logging.warning(
            "%s: the perplexity before the first step was measured on another held-out text than "
            "%s and is discarded", folder, heldout.files.text,
        )  # fmt: skip
    return spec


def specified(
    request: RunRequest,
    texts: RunTexts,
    options: RunOptions,
    n_rows: int | None = None,
    choice: AutoChoice | None = None,
) -> RunSpec:
    """Return the run with these options, whose sizes and length follow from its texts; `n_rows`:
    None for `batch_size` per replica."""
    words = texts.vocab.words  # the options decide whether they are spelled
    vocab = vocabulary_of(texts.vocab.filename, options.model, n_tokens=None, words=words)
    options = options.replace(
        n_train_tokens=texts.n_train_tokens, n_tokens_vocab=vocab.size, once_from=texts.once_from
    )

    # The length: by the request or by epochs, until the pace of a run with a time budget is known.
    n_rows = n_rows or options.batch_size * request.devices.n_replicas
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
    n_heldout = texts.heldout.n_predictions if texts.heldout else 0
    spec = RunSpec(
        options=options,
        n_rows=n_rows,
        texts=replace(texts, vocab=vocab),
        n_steps=n_steps,
        eval_steps=settings.eval_steps or evaluation_steps(options, n_rows, n_heldout),
        settings=settings,
        auto=choice,
        deadline=deadline,
    )
    if options.sample_softmax and not spec.is_sampled:
        logging.warning(
            "%d negatives are not below the vocabulary's %d words: the full softmax is used",
            options.n_negative_samples_batch, vocab.size,
        )  # fmt: skip
    return spec


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


def _rows_of(
    checkpoint: Checkpoint, stored: RunOptions, options: RunOptions, n_replicas: int
) -> int:
    """Return the number of rows of a checkpoint. Raises: WeightsError if the replicas cannot share
    them, or if `options` have another `batch_size` than the `stored` ones."""
    n_rows = checkpoint.record.n_rows
    requested = options.batch_size * n_replicas
    if n_rows == requested:
        return n_rows
    if options.batch_size != stored.batch_size:
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
