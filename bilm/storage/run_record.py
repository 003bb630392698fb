"""`RunRecord`, the JSON file of a checkpoint: everything about a run that is not a tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.options.run_options import MAX_SEED
from bilm.options.schema import Checked, Rule, integer, key

TEXT = Rule(lambda value: isinstance(value, str), "a string")
LIST = Rule(lambda value: isinstance(value, list), "a list")
OBJECT = Rule(lambda value: isinstance(value, Mapping), "an object")
ROWS = Rule(lambda value: isinstance(value, list | tuple) and len(value) == 2, "two numbers")
# The first evaluation may overflow to infinity.
PERPLEXITY = Rule(lambda value: isinstance(value, int | float) and value > 0, "a perplexity")


@dataclass(frozen=True)
class RunRecord(Checked):
    """The content of `model.ckpt-<step>.json`.

    Args:
        step, n_steps: steps that were done; steps that were requested.
        seed: the run's seed.
        batch: rows of the global batch; rows per replica as requested at first.
        shards: name and size of each file of the text.
        vocabulary: `Vocabulary.digest` of the words.
        options: the options of the run, with the requested `batch_size`.
        best: lowest held-out perplexity so far; None before the first.
        auto: length and precision that `--options auto` chose; None without.
        finetuning: the source of a fine-tuning run and its perplexity at the start; None without.
    """

    step: int = key(schema.COUNT)
    n_steps: int = key(schema.NUMBER)
    seed: int = key(integer(0, MAX_SEED))
    batch: tuple[int, int] = key(ROWS)
    shards: list[str] = key(LIST)
    vocabulary: str = key(TEXT)
    options: Mapping[str, Any] = key(OBJECT)
    best: float | None = key(PERPLEXITY, None)
    auto: Mapping[str, Any] | None = key(OBJECT, None)
    finetuning: Mapping[str, Any] | None = key(OBJECT, None)

    @property
    def n_rows(self) -> int:
        """Rows of the global batch."""
        return self.batch[0]

    @property
    def batch_size(self) -> int:
        """Rows per replica as requested at the first start."""
        return self.batch[1]

    @classmethod
    def read(cls, checkpoint: str) -> RunRecord | None:
        """Read the JSON file of a checkpoint, given its path without an ending.

        Returns: None if there is no such file.
        Raises: WeightsError if it is damaged.
        """
        path = f"{checkpoint}.json"
        if not os.path.exists(path):
            return None
        try:
            return schema.load(cls, path, strict=False)
        except OptionsError as error:
            raise WeightsError(str(error)) from None
