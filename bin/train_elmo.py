#!/usr/bin/env python
"""Train a biLM on text, by default with the recipe of bilm-tf, original_2018.

A run that exists in the folder continues with its own options. The script accepts the options of
"bilm train" and those of bilm-tf's script of this name: --train_prefix (--input), --vocab_file
(--vocab) and --save_dir (--output).

Examples:
  python bin/train_elmo.py --train_prefix 'corpus/*' --vocab_file vocab.txt --save_dir run
  python bin/train_elmo.py --train_prefix 'corpus/*' --vocab_file vocab.txt --save_dir run \\
      --options small --n_epochs 2
"""

from typing import Any

from bilm.commands.main import like_reference, run_script
from bilm.commands.train import train

NAMES = {"train_prefix": "input", "vocab_file": "vocab", "save_dir": "output"}
DEFAULT = "options of the resumed run, or original_2018"


def start(folder: str, options: str | None, **values: Any) -> None:
    """Train a new run with the reference's recipe."""
    from bilm.training.run_folder import RunFolder

    if options is None and not RunFolder(folder).holds_run:
        options = "original_2018"
    train.callback(folder=folder, options=options, **values)


if __name__ == "__main__":
    run_script(like_reference(train, __doc__, NAMES, start, options=DEFAULT))
