"""`bilm train`: a new biLM from text."""

from pathlib import Path
from typing import Any

import click
from cloup.constraints import constraint, mutually_exclusive

from bilm.commands import options as opt
from bilm.commands.main import INTERRUPTED, START, command
from bilm.errors import OptionsError
from bilm.options.run_options import AUTO, load_run_options, packaged_options

SIZES = [AUTO, *packaged_options()]
NOTE = """
The text is UTF-8, plain or compressed (gzip, bz2, xz, zstd), with one tokenized sentence per line.
Text and vocabulary may be URLs, such as s3://BUCKET/NAME (docs/clusters.md). Without --vocab, bilm
makes the vocabulary of the text as "bilm vocab" does without --min_count; without --heldout, it
then also writes a twentieth of the text, at most about 20,000 words, to heldout.txt in the run's
folder and trains on the other sentences.

The same command resumes a run that was stopped or killed; docs/reliability.md lists what can be
lost.
"""


@command(tensorflow=True, notes=[NOTE])
@opt.run_options(
    "the options", "from the options", "from the options, or 0",
    usual=[
        opt.option("--vocab", opt.FETCHED, "Vocabulary: the words that the model predicts.",
                   "vocab.txt of the resumed run, or made from the text"),
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
        opt.flag("--from_scratch", "With --options auto, do not start from the character encoder "
                 "of a packaged model."),
    ],
)  # fmt: skip
@constraint(mutually_exclusive, ["hours", "n_steps"])
def train(vocab: str | None, options: str | None, **run: Any) -> int:
    """Train a biLM on text.

    Examples:
      bilm train --input text.txt --output run
      bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --hours 2
      bilm train --input 'corpus/*.gz' --vocab vocab.txt --output run --options original \\
          --heldout 'heldout/*.txt' --eval_steps 5000 --gpus 0,1
    """
    from bilm.data.shards import resolve_shards
    from bilm.training import auto
    from bilm.training.devices import Devices
    from bilm.training.run import TrainingRun
    from bilm.training.run_folder import RunFolder

    folder = RunFolder(run["save_dir"])
    record = folder.record()
    vocabulary = Path(vocab or folder.vocab_file)
    makes_vocab = vocab is None and record is None
    # auto chooses for a new run unless --options names other options; a run is resumed as it is.
    is_auto = options == AUTO or (options is None and (record is None or record.auto is not None))
    if run["hours"] is not None and not is_auto:
        raise click.UsageError("--hours requires --options auto; the length of other runs is set "
                               "with --n_epochs or --n_steps")  # fmt: skip
    if is_auto and record is not None and record.auto is None:
        raise OptionsError(f"{folder}: contains a run whose options were not chosen by auto; omit "
                           "--options to resume it, or use another folder")  # fmt: skip

    changes = opt.given(run, ("batch_size", "n_epochs", *opt.RATE))
    with opt.run_hosts(run) as hosts:
        if is_auto and hosts.n_workers > 1:
            raise click.UsageError("--options auto cannot choose for several workers; expected a "
                                   "file or another name")  # fmt: skip
        if makes_vocab and hosts.n_workers > 1:
            raise click.UsageError("--vocab is required for several workers")
        if not makes_vocab and not vocab and not vocabulary.is_file():
            raise click.UsageError(f"--vocab is required: {vocabulary} does not exist any more")

        # The texts, and the vocabulary of a new run.
        arguments = opt.run_arguments(run, hosts)
        text = resolve_shards(run["train_prefix"], run["on_bad_utf8"])
        if record is None:
            folder.check_resume(run["resume"])
            holds_out = makes_vocab and not run["heldout_prefix"]
            hosts.from_chief("inputs", lambda: folder.make_inputs(text, makes_vocab, holds_out))
        text = folder.training_part(text)
        heldout = run["heldout_prefix"]
        if not heldout and folder.heldout_file.is_file():
            heldout = folder.heldout_file
        if heldout:
            heldout = resolve_shards(heldout, run["on_bad_utf8"])
        arguments |= {"train_prefix": text, "heldout_prefix": heldout}

        # The options, and what auto chooses beside them.
        if is_auto:
            request = auto.Request(
                changes, run["n_train_tokens"], run["n_steps"], run["precision"], run["hours"],
                run["from_scratch"],
            )  # fmt: skip
            if record is None:
                devices = Devices(arguments["strategy"], hosts)
                arguments |= auto.chosen(text, heldout, vocabulary, request, devices)
            else:
                arguments |= auto.resumed(record, request)
            if run["hours"] is not None and arguments["n_steps"] is None:
                started = click.get_current_context().meta[START]
                arguments["deadline"] = started + 3600 * run["hours"]
        else:
            stored = load_run_options(options or folder.options_file)
            arguments["options"] = stored.replace(**changes, n_train_tokens=run["n_train_tokens"])
        result = TrainingRun(vocab_file=vocabulary, **arguments).train()
    return 0 if result.finished else INTERRUPTED
