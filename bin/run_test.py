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
    """Set the reference's number of rows, unless the model adapts to the text in one row, and the
    reference's digits."""
    values["decimals"] = max(values["decimals"], 12)
    if values["batch_size"] is None and values["adapt"] is None and values["cache"] is None:
        values["batch_size"] = 256


if __name__ == "__main__":
    run_script(like_reference(test, __doc__, NAMES, complete))
