"""`RunRecord`, the JSON file of a checkpoint: everything about a run that is not a tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.options.run_options import MAX_SEED
from bilm.options.schema import Checked, Rule, choice, instance, integer, key
from bilm.precisions import PRECISIONS

TEXT = instance(str, "a string")
LIST = instance(list, "a list")
OBJECT = instance(Mapping, "an object")
ROWS = Rule(lambda value: isinstance(value, list | tuple) and len(value) == 2, "two numbers")
# The first evaluation may overflow to infinity.
PERPLEXITY = Rule(lambda value: isinstance(value, int | float) and value > 0, "a perplexity")
HOURS = Rule(lambda value: isinstance(value, int | float), "hours")
SECONDS = Rule(lambda value: isinstance(value, int | float) and value >= 0, "seconds")


@dataclass(frozen=True)
class AutoChoice(Checked):
    """What the options `auto` chose for a run, and what was requested of them."""

    n_steps: int | None = key(schema.NUMBER, None)  # None before the pace in a budget was measured
    precision: str = key(choice(*PRECISIONS), "float32")  # of matrix-multiplication inputs
    hours: float | None = key(HOURS, None)  # budget; None for as long as training is useful
    encoder: str | None = key(TEXT, None)  # packaged model that it came from; None for random


@dataclass(frozen=True)
class Finetuning(Checked):
    """What a fine-tuning run started from: the names of the model, the perplexity of the held-out
    text before the first step, and the files of that text."""

    source: list[str] = key(LIST)
    before: Mapping[str, Any] | None = key(OBJECT, None)
    text: list[str] | None = key(LIST, None)


@dataclass(frozen=True)
class HeldoutFiles(Checked):
    """The files of held-out text, see `describe_shards`, and the digests of their sentences that
    the training text contains, which evaluations leave out."""

    text: list[str] = key(LIST)
    repeated: list[int] = key(LIST)


@dataclass(frozen=True)
class RunRecord(Checked):
    """The content of `model.ckpt-<step>.json`."""

    step: int = key(schema.COUNT)
    n_steps: int = key(schema.NUMBER)  # requested
    seed: int = key(integer(0, MAX_SEED))
    batch: tuple[int, int] = key(ROWS)  # `n_rows` and `batch_size`
    shards: list[str] = key(LIST)  # of the text, see `describe_shards`
    vocabulary: str = key(TEXT)  # `Vocabulary.digest` of the words
    options: Mapping[str, Any] = key(OBJECT)  # with the requested `batch_size`
    best: float | None = key(PERPLEXITY, None)  # lowest held-out perplexity so far
    auto: AutoChoice | None = key(AutoChoice, None)
    finetuning: Finetuning | None = key(Finetuning, None)
    heldout: HeldoutFiles | None = key(HeldoutFiles, None)
    left_out: int | None = key(schema.COUNT, None)  # number of sentences of the text not read
    processor_seconds: float = key(SECONDS, 0.0)  # processor time of the run

    @property
    def n_rows(self) -> int:
        """Rows of the global batch."""
        return self.batch[0]

    @classmethod
    def read(cls, checkpoint: str) -> RunRecord | None:
        """Read the JSON file of a checkpoint, given its path without an ending; return None if the
        file is missing. Raises: WeightsError if it is damaged."""
        path = f"{checkpoint}.json"
        if not os.path.exists(path):
            return None
        try:
            return schema.load(cls, path)
        except OptionsError as error:
            raise WeightsError(str(error)) from None
