"""The recipes of the options `auto` of `bilm train`: regularization, length and rate by the text.

No step is timed before a run: see `decisions.pace` for one with a time budget. `RECIPES` were
measured on `classics_en`, English novels: docs/experiments.md lists the runs.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from bilm.data.survey import SAMPLE_TOKENS
from bilm.options.run_options import RunOptions, load_run_options


class Recipe(NamedTuple):
    """What is best for a text of a size."""

    n_predictions: float  # at most, per epoch and direction
    changes: Mapping[str, Any]  # keys that differ from the options `BASE`
    n_epochs: int  # passes over the text, if there is time for them


BASE = "compact"  # packaged options
ENCODER = "novels-en"  # the packaged model of that size whose encoder starts new runs
STRONG = {"variational_dropout": True, "embedding_dropout": 0.1, "weight_decay": 0.5}
SMALL = {"dropout": 0.39, "embedding_dropout": 0.078, "weight_decay": 0.39, "learning_rate": 0.0078}
RECIPES = (
    Recipe(60_000, {**STRONG, **SMALL, "batch_size": 16}, 12),
    Recipe(700_000, {"dropout": 0.3, **STRONG}, 24),
    Recipe(2_000_000, {"dropout": 0.2, **STRONG, "weight_decay": 0.05}, 8),
    Recipe(4_000_000, {"dropout": 0.15, "weight_decay": 0.05}, 9),
    Recipe(math.inf, {}, 3),  # not measured
)
REGULARIZATION = ("dropout", "embedding_dropout", "weight_decay")
FAST_RATE = 0.02  # learning rate of a run that reads its text once
# Of `expected_ratio`, fitted to measured runs.
RATIO = 0.47
BY_SIZE = -0.12
BY_SAMPLE = -0.21
BY_EPOCHS = 0.30
BY_VARIETY = 0.35


def recipe_for(n_predictions: int) -> Recipe:
    """Return the recipe for a text with a number of predictions per epoch and direction."""
    return next(recipe for recipe in RECIPES if n_predictions <= recipe.n_predictions)


def options_for(n_predictions: int) -> RunOptions:
    """Return the options for a text with a number of predictions per epoch and direction."""
    recipe = recipe_for(n_predictions)
    return load_run_options(BASE).replace(
        **recipe.changes, n_epochs=recipe.n_epochs, n_train_tokens=n_predictions
    )


def chosen(
    n_predictions: int,
    changes: Mapping[str, Any],
    n_steps: int | None,
    n_replicas: int,
    has_budget: bool,
) -> RunOptions:
    """Return the options of a new run on a text of so many predictions per epoch and direction,
    with the requested `changes` and length; `n_steps` is None for the largest useful one, and
    `has_budget` if the pace of the first steps will determine it."""
    options = options_for(n_predictions).replace(**changes)
    if has_budget:
        return options
    n_epochs: float = options.n_epochs
    if n_steps is not None:
        n_rows = options.batch_size * n_replicas
        n_epochs = n_steps * n_rows * options.unroll_steps / n_predictions
    return options.replace(**changes_for(options, n_epochs))


def changes_for(options: RunOptions, n_epochs: float) -> dict[str, Any]:
    """Return what a run changes in the options of `options_for` if it reads the text `n_epochs`
    times; values that the user chose stay. A run that reads it once cannot overfit, and has time
    only for large steps: it has no regularization and `FAST_RATE`. From there to the recipe, both
    change with the logarithm of `n_epochs`."""
    recipe = options_for(options.n_train_tokens or 0)
    if n_epochs >= recipe.n_epochs:
        return {}
    share = math.log(max(1.0, n_epochs)) / math.log(recipe.n_epochs)
    changes = {key: round(share * getattr(recipe, key), 3) for key in REGULARIZATION}
    if recipe.learning_rate:
        changes["learning_rate"] = round(FAST_RATE * (recipe.learning_rate / FAST_RATE) ** share, 4)
    return {
        key: value
        for key, value in changes.items()
        if getattr(options, key) == getattr(recipe, key)
    }


def expected_ratio(n_read: int, n_train_tokens: int, n_words: int) -> float:
    """Return the perplexity that a run should reach, divided by bigrams': see `scoring.verdict`.

    A model is ahead of bigrams by more, the more text it reads, and the more often, and by less if
    more than a tenth of the predictions are different words. The bigrams of more than
    `SAMPLE_TOKENS` would be better: they are not counted. `n_read`: predictions per direction in
    the run; `n_train_tokens`: in an epoch; `n_words`: of the vocabulary.
    """
    n_distinct = min(n_read, n_train_tokens)
    size = n_distinct / SAMPLE_TOKENS
    n_epochs = n_read / n_distinct
    variety = max(1.0, 10 * n_words / n_train_tokens) ** BY_VARIETY
    of_text = RATIO * size**BY_SIZE * max(1.0, size) ** BY_SAMPLE * variety
    return of_text * (1 + BY_EPOCHS / n_epochs)
