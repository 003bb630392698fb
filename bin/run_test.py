#!/usr/bin/env python
"""Measure the perplexity of held-out text, by default in 256 rows, on which the result depends.

The script accepts the options of bilm-tf's script of this name and those of "bilm test".

Example:
  python bin/run_test.py --test_prefix 'heldout/*' --vocab_file vocab.txt --save_dir run
"""

from typing import Any

from bilm.commands.main import like_reference, run_script
from bilm.commands.test import test

NAMES = {"input_": "test_prefix", "vocab": "vocab_file", "model": "save_dir"}


def complete(values: dict[str, Any]) -> None:
    """Set the reference's number of rows and digits."""
    values["decimals"] = max(values["decimals"], 12)
    values["batch_size"] = values["batch_size"] or 256


if __name__ == "__main__":
    run_script(like_reference(test, __doc__, NAMES, complete))
