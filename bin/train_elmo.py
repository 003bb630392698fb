#!/usr/bin/env python
"""Train a biLM on text, by default with the recipe of bilm-tf, original_2018.

A run that exists in the folder continues with its own options. The script accepts the options of
bilm-tf's script of this name and those of "bilm train".

Examples:
  python bin/train_elmo.py --train_prefix 'corpus/*' --vocab_file vocab.txt --save_dir run
  python bin/train_elmo.py --train_prefix 'corpus/*' --vocab_file vocab.txt --save_dir run \\
      --options small --n_epochs 2
"""

from typing import Any

from bilm.commands.main import like_reference, run_script
from bilm.commands.train import train

NAMES = {"save_dir": "save_dir", "vocab": "vocab_file", "train_prefix": "train_prefix"}


def complete(values: dict[str, Any]) -> None:
    """Set the reference's recipe for a new run."""
    from bilm.training.run_folder import RunFolder

    if values["options"] is None and not RunFolder(values["save_dir"]).holds_run:
        values["options"] = "original_2018"


if __name__ == "__main__":
    run_script(like_reference(train, __doc__, NAMES, complete))
