"""`bilm train`: a new biLM from text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bilm.commands import options as opt
from bilm.commands.main import INTERRUPTED, command
from bilm.options.run_options import load_run_options, packaged_options

NOTE = """
The text is UTF-8, plain or compressed (gzip, bz2, xz, zstd), with one tokenized sentence per line.
Text and vocabulary may be URLs, such as s3://BUCKET/NAME (docs/clusters.md). The vocabulary is
written by "bilm vocab": <S>, </S> and <UNK>, then one word per line, sorted by descending
frequency. The same command resumes a run that was stopped or killed; docs/reliability.md lists what
can be lost.
"""


@command(notes=[NOTE])
@opt.group(
    "Model",
    opt.option("--vocab", opt.FETCHED, "Vocabulary: the words that the model predicts.",
               "vocab.txt of the resumed run"),
    opt.option("--options", opt.FetchedFile(packaged_options), "Options of the run: a file, or one "
               f"of {', '.join(packaged_options())}. original_2018 has the optimizer settings of "
               f"the reference.",
               "options of the resumed run, or small", metavar="NAME|FILE"),
    opt.option("--batch_size", opt.Integer(1), "Rows per replica.", "from the options"),
    opt.option("--n_epochs", opt.Integer(1), "Passes over the text.", "from the options"),
    opt.option("--n_train_tokens", opt.Integer(1), "Number of predictions per epoch and direction "
               "(tokens plus sentences); skips the count.", "counted in the text"),
)  # fmt: skip
@opt.run_options(rate="from the options, or ", warmup="from the options, or 0")
def train(vocab: str | None, options: str | None, n_train_tokens: int | None, **run: Any) -> int:
    """Train a biLM on text.

    Examples:
      bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run
      bilm train --input 'corpus/*.gz' --vocab vocab.txt --output run --options original \\
          --heldout 'heldout/*.txt' --eval_steps 5000 --gpus 0,1
    """
    from bilm.support.model_files import VOCABULARY
    from bilm.training.run import TrainingRun
    from bilm.training.run_folder import RunFolder

    vocabulary = Path(vocab or Path(run["save_dir"]) / VOCABULARY)
    if vocab is None and not vocabulary.is_file():
        raise click.UsageError(f"--vocab is required: {vocabulary} does not exist")
    with opt.run_hosts(run) as hosts:
        stored = RunFolder(run["save_dir"]).stored_options_file()
        changes = opt.given(run, ("batch_size", "n_epochs", *opt.RATE))
        chosen = load_run_options(options or stored or "small")
        chosen = chosen.replace(**changes, n_train_tokens=n_train_tokens)
        result = TrainingRun(chosen, vocabulary, **opt.run_arguments(run, hosts)).train()
    return 0 if result.finished else INTERRUPTED
