"""Options of commands that score a text with a model that adapts to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from bilm.commands import options as opt

if TYPE_CHECKING:
    from bilm.scoring.adaptation import Adaptation

MORE = {  # options that change one of the two ways to adapt
    "adapt": ("adapt_decay", "adapt_steps"),
    "cache": ("cache_theta", "cache_words"),
}
adaptation_options = opt.group(
    "Adaptation to the text (reported separately)",
    opt.option("--adapt", opt.Number(0), "Learning rate of dynamic evaluation, such as 0.0003: "
               "after every --adapt_steps predictions, the model is trained on them.",
               "no dynamic evaluation"),
    opt.option("--adapt_decay", opt.Number(0, 1), "Share of the distance to the stored weights by "
               "which each update returns.", "0"),
    opt.option("--adapt_steps", opt.Integer(1), "Predictions between two updates.", "20"),
    opt.option("--cache", opt.Number(0, 1, max_open=True), "Weight of a cache of the words that "
               "followed similar contexts, such as 0.1.", "no cache"),
    opt.option("--cache_theta", opt.Number(0), "Flatness of the cache; 0 makes all remembered "
               "words equally likely.", "0.3"),
    opt.option("--cache_words", opt.Integer(1), "Maximum number of predictions that the cache "
               "remembers.", "2000"),
)  # fmt: skip


def adaptation_of(values: Mapping[str, Any]) -> Adaptation | None:
    """Return the adaptation that the values of `adaptation_options` select; None for none.

    Raises: click.UsageError for an option that has no effect without --adapt or --cache.
    """
    for name, more in MORE.items():
        extra = [other for other in more if values[other] is not None]
        if extra and values[name] is None:
            raise click.UsageError(f"--{extra[0]} has no effect without --{name}")
    fields = {
        "rate": "adapt",
        "decay": "adapt_decay",
        "n_steps": "adapt_steps",
        "cache": "cache",
        "theta": "cache_theta",
        "cache_words": "cache_words",
    }
    given = {field: values[name] for field, name in fields.items() if values[name] is not None}
    if not given:
        return None
    from bilm.scoring.adaptation import Adaptation

    return Adaptation(**given)
