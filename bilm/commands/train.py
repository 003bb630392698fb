"""Train a biLM on text.

Examples:
  bilm train --input 'corpus/*.txt' --vocab vocab.txt --output run
  bilm train --input 'corpus/*.gz' --vocab vocab.txt --output run --options original \\
      --heldout 'heldout/*.txt' --eval_steps 5000 --gpus 0,1

The text is UTF-8, one tokenized sentence per line, plain or gzip. The vocabulary holds <S>, </S>
and <UNK> and then one word per line by falling frequency, as `bilm vocab` writes it. The same
command continues a run that was stopped or killed; docs/reliability.md says what may be lost.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from bilm.commands.flags import Flags, WrongUse
from bilm.commands.run_flags import RATE, define_run, given, run_arguments, run_hosts
from bilm.commands.terminal import INTERRUPTED


def define_flags(flags: Flags) -> None:
    flags.group("model")
    flags.path(
        "vocab", "The words to predict [vocab.txt in a folder that continues].", old=["vocab_file"]
    )
    flags.path(
        "options",
        "tiny, small, medium, original, original_2018 (the reference's recipe), or a file [small; "
        "a run that continues keeps its own].",
        "NAME|FILE",
    )
    flags.integer("batch_size", "Rows per replica [from the options].", 1)
    flags.integer("n_epochs", "Passes over the text [from the options].", 1)
    flags.integer("n_train_tokens", "Predictions per epoch [counted].", 1)
    define_run(flags)


def main(args: Namespace) -> int:
    from bilm.options import load_run_options
    from bilm.storage.checkpoint import VOCABULARY
    from bilm.training.run import TrainingRun
    from bilm.training.run_folder import RunFolder

    vocab = args.vocab or Path(args.output) / VOCABULARY
    if args.vocab is None and not vocab.is_file():
        raise WrongUse(f"--vocab must be given: there is no {vocab}")
    with run_hosts(args) as hosts:
        stored = RunFolder(args.output).stored_options_file()
        options = load_run_options(args.options or stored or "small")
        changes = given(args, ("batch_size", "n_epochs", *RATE))
        options = options.replace(**changes, n_train_tokens=args.n_train_tokens)
        result = TrainingRun(options, vocab, **run_arguments(args, hosts)).train()
    return 0 if result.finished else INTERRUPTED
