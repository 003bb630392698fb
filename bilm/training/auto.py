"""Chooses size, regularization and length of a run from its text and a time budget: the options
`auto` of `bilm train`.

`RECIPES` were measured on `classics_en`, English novels, on 2 cores: docs/experiments.md lists the
runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bilm.errors import OptionsError
from bilm.options.run_options import RunOptions, load_run_options
from bilm.training.survey import SAMPLE_TOKENS

START_SECONDS = 40.0  # until the first step is done
STEPS_SHARE = 0.93  # of the time; the rest is for checkpoints and for steps that take longer


class Recipe(NamedTuple):
    """What is best for a text of a size.

    Fields:
        n_predictions: largest number of predictions per epoch and direction.
        options: packaged options.
        changes: their keys that differ.
        n_epochs: passes over the text, if there is time for them.
    """

    n_predictions: float
    options: str
    changes: Mapping[str, Any]
    n_epochs: int


STRONG = {"variational_dropout": True, "embedding_dropout": 0.1, "weight_decay": 0.5}
RECIPES = (
    Recipe(60_000, "compact", {"dropout": 0.5, **STRONG, "batch_size": 16}, 24),
    Recipe(700_000, "compact", {"dropout": 0.3, **STRONG}, 24),
    Recipe(2_000_000, "compact", {"dropout": 0.2, **STRONG, "weight_decay": 0.05}, 8),
    Recipe(4_000_000, "compact", {"dropout": 0.15, "weight_decay": 0.05}, 9),
    Recipe(math.inf, "compact", {}, 3),  # not measured
)
# Of `expected_perplexity`, fitted to measured runs.
RATIO, BY_SIZE, BY_SAMPLE, BY_EPOCHS, SPREAD = 0.494, -0.12, -0.21, 0.65, 1.2


class Choice(NamedTuple):
    """What `auto` has chosen, as checkpoints store it.

    Fields:
        n_steps: length of the run; None to derive it from `n_epochs`.
        precision: dtype of the inputs of matrix products.
        hours: expected time of the command on this machine.
    """

    n_steps: int | None
    precision: str
    hours: float


def recipe_for(n_predictions: int) -> Recipe:
    """Return the recipe for a text with a number of predictions per epoch and direction."""
    return next(recipe for recipe in RECIPES if n_predictions <= recipe.n_predictions)


def options_for(n_predictions: int) -> RunOptions:
    """Return the options for a text with a number of predictions per epoch and direction."""
    recipe = recipe_for(n_predictions)
    return load_run_options(recipe.options).replace(
        **recipe.changes, n_epochs=recipe.n_epochs, n_train_tokens=n_predictions
    )


def with_warmup(options: RunOptions, n_steps: int) -> RunOptions:
    """Return options whose warm-up takes at most a fifth of a run of `n_steps` steps."""
    return options.replace(warmup_steps=min(options.warmup_steps, max(1, n_steps // 5)))


def choose(
    options: RunOptions,
    step_seconds: Mapping[str, float],
    *,
    hours: float | None = None,
    n_steps: int | None = None,
    spent: float = 0.0,
    n_replicas: int = 1,
    n_heldout: int = 0,
    eval_steps: int | None = None,
) -> Choice:
    """Choose length and precision of a run.

    Args:
        options: options of the run, with `n_train_tokens`; `n_epochs` is the longest useful run.
        step_seconds: measured times of a training step by precision; the fastest is chosen.
        hours: time budget of the command; None for the longest useful run.
        n_steps: length of the run; None to choose it.
        spent: seconds that the command has taken before the run.
        n_replicas: number of replicas that share a step.
        n_heldout: predictions per direction of an evaluation; 0 without held-out text.
        eval_steps: steps between evaluations; None for an epoch.
    Raises: OptionsError if the time does not suffice for a step.
    """
    precision = min(step_seconds, key=lambda name: step_seconds[name])
    seconds_a_step = step_seconds[precision]
    predictions_a_step = _predictions(options, n_replicas)
    epoch_steps = max(1, int((options.n_train_tokens or 0) // predictions_a_step))

    # An evaluation has no backward pass, but the full softmax: about as long per prediction. The
    # last one need not be at the end of an interval.
    evaluation_seconds = n_heldout * seconds_a_step / predictions_a_step
    start = spent + START_SECONDS + evaluation_seconds
    seconds_a_step += evaluation_seconds / (eval_steps or epoch_steps)

    if n_steps is None:
        n_steps = options.n_epochs * epoch_steps
        if hours is not None:
            n_steps = min(n_steps, _steps_within(hours, start, seconds_a_step))
    seconds = start + n_steps * seconds_a_step / STEPS_SHARE
    return Choice(n_steps, precision, seconds / 3600)


def _steps_within(hours: float, start: float, seconds_a_step: float) -> int:
    """Return the number of steps for which there is time after `start` seconds.

    Raises: OptionsError if there is none.
    """
    n_steps = int(STEPS_SHARE * (3600 * hours - start) / seconds_a_step)
    if n_steps < 1:
        enough = (start + 100 * seconds_a_step / STEPS_SHARE) / 3600
        raise OptionsError(
            f"hours: found {hours:g}, expected more: everything but the steps takes "
            f"about {start:.0f} s and a step {seconds_a_step:.2f} s here; {enough:.2g} hours "
            "suffice for 100 steps"
        )
    return n_steps


def resumed(
    record: Mapping[str, Any],
    stored: RunOptions,
    changes: Mapping[str, Any],
    n_steps: int | None = None,
    precision: str | None = None,
) -> Choice:
    """Return the length and precision of a run that is resumed.

    The run keeps its length unless `n_steps` or another `n_epochs` is given.

    Args:
        record: the stored `Choice`, as a mapping.
        stored: options of the run.
        changes: values of options that the user has set.
        n_steps, precision: as requested by the user.
    """
    choice = Choice(**{name: record[name] for name in Choice._fields})
    if n_steps is None and changes.get("n_epochs", stored.n_epochs) == stored.n_epochs:
        n_steps = choice.n_steps
    return choice._replace(n_steps=n_steps, precision=precision or choice.precision)


def describe(
    options: RunOptions, choice: Choice, step_seconds: Mapping[str, float], n_replicas: int = 1
) -> Iterator[str]:
    """Yield lines that state what was chosen and what is expected."""
    n_train_tokens, n_steps = options.n_train_tokens or 1, choice.n_steps or 0
    recipe = recipe_for(n_train_tokens)
    changed = [f"{name}={value}" for name, value in recipe.changes.items()]
    chosen = ", ".join([recipe.options, *changed])
    yield f"{n_train_tokens:,} predictions per epoch and direction: options {chosen}"

    n_epochs = n_steps * _predictions(options, n_replicas) / n_train_tokens
    measured = ", ".join(f"{name} {1000 * s:,.0f} ms" for name, s in step_seconds.items())
    yield (
        f"{n_steps:,} steps, {n_epochs:.1f} epochs (useful: at most {options.n_epochs:g}), "
        f"in {choice.precision} (a step: {measured}); "
        f"expected: {choice.hours:.2g} hours"
    )


def expected_perplexity(
    options: RunOptions, bigrams: float, n_steps: int, n_replicas: int = 1
) -> tuple[float, float]:
    """Return the range of held-out perplexity that a run of `n_steps` steps should reach.

    A model is ahead of bigrams by more, the more text it reads, and the more often. The bigrams of
    more than `SAMPLE_TOKENS` would be better: they are not counted.

    Args:
        bigrams: the perplexity of `bilm.data.ngrams.bigram_perplexity`.
    """
    n_read = n_steps * _predictions(options, n_replicas)
    n_distinct = min(n_read, options.n_train_tokens or 1)
    size = n_distinct / SAMPLE_TOKENS
    n_epochs = n_read / n_distinct
    ratio = RATIO * size**BY_SIZE * (1 + BY_EPOCHS / n_epochs) * max(1.0, size) ** BY_SAMPLE
    expected = bigrams * ratio
    return expected / SPREAD, expected * SPREAD


def _predictions(options: RunOptions, n_replicas: int) -> float:
    """Return the number of predictions in a step, per direction."""
    return options.batch_size * options.unroll_steps * n_replicas
