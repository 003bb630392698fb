#!/usr/bin/env python
"""Measure perplexity with the options of bilm-tf's script of this name; `bilm test` has more."""

import click

from bilm.commands.main import command, run_script
from bilm.commands.options import FILE, Integer, option
from bilm.commands.test import test


@command()
@option("--test_prefix", FILE, "Held-out text, quoted.", metavar="PATTERN", required=True)
@option("--vocab_file", FILE, "Vocabulary of the run.", required=True)
@option("--save_dir", FILE, "Folder of the run.", metavar="FOLDER", required=True)
@option("--batch_size", Integer(1), "Number of rows.", default=256)
@click.pass_context
def run_test(
    context: click.Context, test_prefix: str, vocab_file: str, save_dir: str, batch_size: int
) -> None:
    """Measure the perplexity of held-out text. The same as "bilm test".

    Example:
      python bin/run_test.py --test_prefix 'heldout/*' --vocab_file vocab.txt --save_dir run
    """
    context.invoke(
        test, input_=test_prefix, vocab=vocab_file, model=save_dir, batch_size=batch_size
    )


if __name__ == "__main__":
    run_script(run_test)
