#!/usr/bin/env python
"""Train a biLM with the options of bilm-tf's script of this name; `bilm train` has more."""

import click

from bilm.commands.main import command, run_script
from bilm.commands.options import FILE, option
from bilm.commands.train import train


@command()
@option("--save_dir", FILE, "Folder of the run.", metavar="FOLDER", required=True)
@option("--vocab_file", FILE, "Vocabulary, one word per line.", required=True)
@option("--train_prefix", FILE, "Training text, quoted.", metavar="PATTERN", required=True)
@click.pass_context
def train_elmo(context: click.Context, save_dir: str, vocab_file: str, train_prefix: str) -> int:
    """Train a biLM on text, with the reference's recipe, original_2018.

    A run that exists in the folder continues with its own options. The same as
    "bilm train --options original_2018".

    Example:
      python bin/train_elmo.py --train_prefix 'corpus/*' --vocab_file vocab.txt --save_dir run
    """
    from bilm.training.run_folder import RunFolder

    options = None if RunFolder(save_dir).stored_options_file() else "original_2018"
    return context.invoke(
        train, train_prefix=train_prefix, vocab=vocab_file, save_dir=save_dir, options=options
    )


if __name__ == "__main__":
    run_script(train_elmo)
