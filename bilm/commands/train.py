"""`bilm train`: a new biLM from text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands.main import INTERRUPTED, START, command
from bilm.errors import OptionsError
from bilm.options import schema
from bilm.options.run_options import AUTO, RunOptions, load_run_options, packaged_options

if TYPE_CHECKING:
    from bilm.training.auto import Choice
    from bilm.training.run_folder import RunFolder

SIZES = [AUTO, *packaged_options()]
NOTE = """
The text is UTF-8, plain or compressed (gzip, bz2, xz, zstd), with one tokenized sentence per line.
Text and vocabulary may be URLs, such as s3://BUCKET/NAME (docs/clusters.md). The vocabulary is
written by "bilm vocab": <S>, </S> and <UNK>, then one word per line, sorted by descending
frequency. The same command resumes a run that was stopped or killed; docs/reliability.md lists what
can be lost.
"""


@command(notes=[NOTE])
@opt.run_options(
    "the options", "from the options", "from the options, or 0",
    usual=[
        opt.option("--vocab", opt.FETCHED, "Vocabulary: the words that the model predicts.",
                   "vocab.txt of the resumed run"),
        opt.option("--options", opt.FETCHED, "Options of the run: a file, or "
                   f"one of {', '.join(SIZES)}. auto chooses by the text and --hours. "
                   "original_2018 has the optimizer settings of the reference.",
                   "options of the resumed run, or auto", metavar="NAME|FILE"),
        opt.option("--hours", opt.Number(0), "Time of the run on this machine, for --options auto.",
                   "as long as training is useful"),
    ],
    more=[
        opt.option("--n_train_tokens", opt.Integer(1), "Number of predictions per epoch and "
                   "direction; a long text is not counted then.", "counted in the text"),
    ],
)  # fmt: skip
@constraint(mutually_exclusive, ["hours", "n_steps"])
def train(vocab: str | None, options: str | None, **run: Any) -> int:
    """Train a biLM on text.

    Examples:
      bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --hours 2
      bilm train --input 'corpus/*.gz' --vocab vocab.txt --output run --options original \\
          --heldout 'heldout/*.txt' --eval_steps 5000 --gpus 0,1
    """
    from bilm.training.run import TrainingRun
    from bilm.training.run_folder import RunFolder

    folder = RunFolder(run["save_dir"])
    vocabulary = Path(vocab or folder.vocab_file)
    if vocab is None and not vocabulary.is_file():
        raise click.UsageError(f"--vocab is required: {vocabulary} does not exist")

    # auto chooses for a new run unless --options names other options; a run is resumed as it is.
    record = folder.record()
    auto_choice = None if record is None else record.auto  # of the run that is resumed
    is_auto = options == AUTO or (
        options is None and (auto_choice is not None or not folder.holds_run)
    )
    if run["hours"] is not None and not is_auto:
        raise click.UsageError("--hours requires --options auto; the length of other runs is set "
                               "with --n_epochs or --n_steps")  # fmt: skip

    changes = opt.given(run, ("batch_size", "n_epochs", *opt.RATE))
    with opt.run_hosts(run) as hosts:
        if is_auto and hosts.n_workers > 1:
            raise click.UsageError("--options auto cannot choose for several workers; expected a "
                                   "file or another name")  # fmt: skip
        arguments = opt.run_arguments(run, hosts)
        if not is_auto:
            chosen = load_run_options(options or folder.options_file)
            chosen = chosen.replace(**changes, n_train_tokens=run["n_train_tokens"])
        elif record is not None and auto_choice is not None:
            chosen, choice = _resumed(record.options, auto_choice, run, changes)
        else:
            n_replicas = arguments["strategy"].num_replicas_in_sync
            chosen, choice = _chosen(folder, vocabulary, run, changes, n_replicas)
            if run["hours"]:
                arguments["deadline"] = _started() + 3600 * run["hours"]
        if is_auto:
            arguments |= {"n_steps": choice.n_steps, "precision": choice.precision}
            arguments["auto"] = choice._asdict()
        result = TrainingRun(chosen, vocabulary, **arguments).train()
    return 0 if result.finished else INTERRUPTED


def _resumed(
    stored: Mapping[str, Any],
    auto_choice: Mapping[str, Any],
    run: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> tuple[RunOptions, Choice]:
    """Return the options, length and precision of a run that auto chose.

    Args:
        stored, auto_choice: the options, and the `Choice`, in the record of the run.
        run, changes: see `_chosen`.
    """
    from absl import logging

    from bilm.training import auto

    if run["hours"]:
        logging.info("auto: a resumed run keeps its length; --hours is for new runs")
    options = schema.read(RunOptions, stored, strict=False)
    if run["n_train_tokens"] is not None:
        options = options.replace(n_train_tokens=run["n_train_tokens"])
    choice = auto.resumed(auto_choice, options, changes, run["n_steps"], run["precision"])
    return options.replace(**changes), choice


def _chosen(
    folder: RunFolder,
    vocab_file: Path,
    run: Mapping[str, Any],
    changes: Mapping[str, Any],
    n_replicas: int,
) -> tuple[RunOptions, Choice]:
    """Return the options, length and precision that are best for a text on this machine.

    Args:
        folder: folder of the new run.
        vocab_file: the vocabulary.
        run: values of the options of the command.
        changes: options of the run that the user has set.
        n_replicas: number of replicas.
    Raises: BilmError if an input cannot be used.
    """
    from absl import logging

    from bilm.data.shards import count_tokens, resolve_shards
    from bilm.support.probes import ProbeFailure
    from bilm.training import auto, timing

    if folder.holds_run:
        raise OptionsError(f"{folder}: contains a run whose options were not chosen by auto; omit "
                           "--options to resume it, or use another folder")  # fmt: skip
    folder.check_resume(run["resume"])

    # Options by the length of the text.
    pattern, on_bad_utf8 = run["train_prefix"], run["on_bad_utf8"]
    shards = resolve_shards(pattern, on_bad_utf8)
    logging.info("auto: counting the text, then timing training steps on this machine")
    n_predictions = run["n_train_tokens"] or count_tokens(shards).n_predictions
    options = auto.options_for(n_predictions).replace(**changes)

    # Length and precision by the time of a step, and by the time that evaluations need.
    devices = opt.given(run, opt.DEVICES)
    try:
        step_seconds = timing.measure(
            options, pattern, vocab_file, on_bad_utf8, run["precision"], devices
        )
    except ProbeFailure as error:
        raise OptionsError(f"auto: the speed of training cannot be measured here: {error}; "
                           "choose a size with --options") from None  # fmt: skip
    n_heldout = 0
    if run["heldout_prefix"]:
        heldout = resolve_shards(run["heldout_prefix"], on_bad_utf8)
        n_heldout = count_tokens(heldout).n_predictions
    choice = auto.choose(
        options, step_seconds, hours=run["hours"], n_steps=run["n_steps"],
        spent=time.monotonic() - _started(), n_replicas=n_replicas, n_heldout=n_heldout,
        eval_steps=run["eval_steps"],
    )  # fmt: skip

    if "warmup_steps" not in changes:
        options = auto.with_warmup(options, choice.n_steps or 0)
    for line in auto.describe(options, choice, step_seconds, n_replicas):
        logging.info("auto: %s", line)
    return options, choice


def _started() -> float:
    """Return the `time.monotonic()` at which the command started."""
    return click.get_current_context().meta[START]
