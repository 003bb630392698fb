#!/usr/bin/env python
"""Measure the perplexity of held-out text, by default in 256 rows, on which the result depends.

The script accepts the options of "bilm test" and those of bilm-tf's script of this name:
--test_prefix (--input), --vocab_file (--vocab), --save_dir (--model) and --batch_size.

Example:
  python bin/run_test.py --test_prefix 'heldout/*' --vocab_file vocab.txt --save_dir run
"""

from typing import Any

from bilm.commands.main import like_reference, run_script
from bilm.commands.test import test

NAMES = {"test_prefix": "input", "vocab_file": "vocab", "save_dir": "model"}


def measure(batch_size: int | None, decimals: int, **values: Any) -> None:
    """Measure with the reference's number of rows and digits."""
    test.callback(batch_size=batch_size or 256, decimals=max(decimals, 12), **values)


if __name__ == "__main__":
    run_script(like_reference(test, __doc__, NAMES, measure, batch_size="256", decimals="12"))
