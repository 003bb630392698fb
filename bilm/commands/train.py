"""`bilm train`: a new biLM from text."""

from typing import Any

import click

from bilm.commands import options as opt
from bilm.commands.main import INTERRUPTED, START, command
from bilm.options.run_options import AUTO, packaged_options

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
def train(**run: Any) -> int:
    """Train a biLM on text.

    Examples:
      bilm train --input text.txt --output run
      bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run --hours 2
      bilm train --input 'corpus/*.gz' --vocab vocab.txt --output run --options original \\
          --heldout 'heldout/*.txt' --eval_steps 5000 --gpus 0,1
    """
    from bilm.training.run import train as train_model

    run["started"] = click.get_current_context().meta[START]
    result, _ = opt.run_training(train_model, run)
    return 0 if result.finished else INTERRUPTED
