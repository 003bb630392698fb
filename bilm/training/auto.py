"""Chooses size, regularization and length of a run from its text and a time budget: the options
`auto` of `bilm train`.

`RECIPES` and the perplexities were measured on `classics_en`, English novels, on 2 cores:
docs/experiments.md lists the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.errors import OptionsError
from bilm.options.run_options import RunOptions, load_run_options

PRECISIONS = ("float32", "bfloat16")
START_SECONDS = 40.0  # until the first step is done
STEPS_SHARE = 0.93  # of the time; the rest is for checkpoints and for steps that take longer
SENTENCE_PREDICTIONS = 25  # of an English sentence, with its end
SPREAD = 1.2  # factor between the expected perplexity and the ends of its range
SHORT, SHORT_SPREAD = 230_000, 1.5  # runs of fewer predictions than SHORT differ more


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


STRONG = {"variational_dropout": True, "embedding_dropout": 0.1, "weight_decay": 0.05}
RECIPES = (
    Recipe(60_000, "compact", {"dropout": 0.5, **STRONG, "batch_size": 16}, 12),
    Recipe(700_000, "compact", {"dropout": 0.3, **STRONG}, 12),
    Recipe(2_000_000, "compact", {"dropout": 0.2, **STRONG}, 8),
    Recipe(4_000_000, "compact", {"dropout": 0.15, "weight_decay": 0.05}, 9),
    Recipe(math.inf, "compact", {}, 3),  # not measured
)
# Held-out perplexity divided by the perplexity of the frequencies of words, by the number of
# predictions that a run was trained on, and by the size of a text that is read until it is best.
BY_LENGTH = {
    5_000: 0.82,
    20_000: 0.72,
    77_000: 0.43,
    230_000: 0.26,
    640_000: 0.225,
    1_920_000: 0.152,
    10_560_000: 0.117,
    32_640_000: 0.104,
}
BY_TEXT = {20_000: 0.247, 350_000: 0.177, 1_040_000: 0.171, 3_580_000: 0.104}


class Choice(NamedTuple):
    """What `auto` has chosen, as checkpoints store it.

    Fields:
        n_steps: length of the run; None to derive it from `n_epochs`.
        precision: dtype of the inputs of matrix products.
        hours: expected time of the command on this machine.
        perplexity: expected range of the held-out perplexity, for a held-out text that is like the
            training text.
        budget: requested time in hours; None without.
    """

    n_steps: int | None
    precision: str
    hours: float
    perplexity: tuple[float, float]
    budget: float | None = None


class Times(NamedTuple):
    """Times measured on this machine, in seconds.

    Fields:
        step: a training step.
        prediction: a prediction of an evaluation, in all directions of the model.
    """

    step: float
    prediction: float = 0.0


class Request(NamedTuple):
    """Requests of the user, and what else limits a run.

    Fields:
        hours: time budget of the command; None for the longest useful run.
        n_steps: length of the run; None to choose it.
        precision: dtype of the inputs of matrix products; None for the fastest.
        spent: seconds that the command has taken before the run.
        n_replicas: number of replicas that share a step.
    """

    hours: float | None = None
    n_steps: int | None = None
    precision: str | None = None
    spent: float = 0.0
    n_replicas: int = 1


NO_REQUEST = Request()


class Evaluation(NamedTuple):
    """The evaluations of a run.

    Fields:
        n_predictions: predictions per direction of one evaluation; 0 without held-out text.
        n_steps: steps between evaluations; None for an epoch.
    """

    n_predictions: int = 0
    n_steps: int | None = None


NO_EVALUATION = Evaluation()


def recipe_for(n_predictions: int) -> Recipe:
    """Return the recipe for a text with a number of predictions per epoch and direction."""
    return next(recipe for recipe in RECIPES if n_predictions <= recipe.n_predictions)


def options_for(n_predictions: int) -> RunOptions:
    """Return the options for a text with a number of predictions per epoch and direction."""
    recipe = recipe_for(n_predictions)
    found = load_run_options(recipe.options).replace(**recipe.changes, n_epochs=recipe.n_epochs)
    return found.replace(n_train_tokens=n_predictions)


def with_warmup(options: RunOptions, n_steps: int) -> RunOptions:
    """Return options whose warm-up takes at most a fifth of a run of `n_steps` steps."""
    return options.replace(warmup_steps=min(options.warmup_steps, max(1, n_steps // 5)))


def choose(
    options: RunOptions,
    unigram_perplexity: float,
    times: Mapping[str, Times],
    request: Request = NO_REQUEST,
    evaluation: Evaluation = NO_EVALUATION,
) -> Choice:
    """Choose length and precision of a run.

    Args:
        options: options of the run, with `n_train_tokens`; `n_epochs` is the longest useful run.
        unigram_perplexity: perplexity of the training text by the frequencies of its words.
        times: measured times by precision, with float32.
        request: what the user has requested.
        evaluation: the evaluations of the run.
    Raises: OptionsError if the time does not suffice for a step.
    """
    precision = request.precision or min(times, key=lambda name: times[name].step)
    # bfloat16 is not measured on a processor without instructions for it.
    time = times.get(precision, times["float32"])
    a_step = _predictions(options, request.n_replicas)
    epoch_steps = max(1, int((options.n_train_tokens or 0) // a_step))
    n_steps = request.n_steps or options.n_epochs * epoch_steps
    an_evaluation = evaluation.n_predictions * time.prediction
    # The last evaluation need not be at the end of an interval.
    start = request.spent + START_SECONDS + an_evaluation
    seconds = time.step + an_evaluation / (evaluation.n_steps or epoch_steps)
    if request.hours is not None and request.n_steps is None:
        possible = int(STEPS_SHARE * (3600 * request.hours - start) / seconds)
        if possible < 1:
            least = (start + 100 * seconds / STEPS_SHARE) / 3600
            raise OptionsError(
                f"hours: found {request.hours:g}, expected more: everything but the steps takes "
                f"about {start:.0f} s and a step {seconds:.2f} s here; {least:.2g} hours suffice "
                "for 100 steps"
            )
        n_steps = min(n_steps, possible)
    total = (start + n_steps * seconds / STEPS_SHARE) / 3600
    n_read = n_steps * a_step
    ratio = max(
        _interpolated(BY_LENGTH, n_read),
        _interpolated(BY_TEXT, options.n_train_tokens or 1),
    )
    expected = max(1.0, ratio * unigram_perplexity)
    spread = SHORT_SPREAD if n_read < SHORT else SPREAD
    expected_range = expected / spread, expected * spread
    return Choice(n_steps, precision, total, expected_range, request.hours)


def check_hours(hours: float | None) -> None:
    """Refuse a budget in which no run can start. The check needs no measurement.

    Raises: OptionsError.
    """
    if hours is not None and 3600 * hours <= START_SECONDS:
        raise OptionsError(
            f"hours: found {hours:g}, expected more: a run starts after about {START_SECONDS:.0f} "
            f"s, {START_SECONDS / 3600:.2g} hours"
        )


def resumed(
    record: Mapping[str, Any], stored: RunOptions, changes: Mapping[str, Any], request: Request
) -> Choice:
    """Return the length and precision of a run that is resumed.

    The run keeps its length unless `request.n_steps` or another `n_epochs` is given.

    Args:
        record: the stored `Choice`, as a mapping.
        stored: options of the run.
        changes: values of options that the user has set.
        request: what the user has requested; its time budget has no effect.
    """
    choice = Choice(**record)
    n_steps = request.n_steps
    if n_steps is None and changes.get("n_epochs", stored.n_epochs) == stored.n_epochs:
        n_steps = choice.n_steps
    if request.hours not in (None, choice.budget):
        logging.warning(
            "--hours has no effect on a resumed run; --n_steps or --n_epochs changes its length"
        )
    return choice._replace(n_steps=n_steps, precision=request.precision or choice.precision)


def describe(
    options: RunOptions, choice: Choice, times: Mapping[str, Times], n_replicas: int = 1
) -> Iterator[str]:
    """Yield lines that state what was chosen and what is expected."""
    recipe = recipe_for(options.n_train_tokens or 1)
    default = load_run_options(recipe.options).to_dict()
    changed = [
        f"{name}={value}"
        for name, value in options.to_dict().items()
        if name not in ("n_train_tokens", "n_epochs") and value != default.get(name)
    ]
    yield f"{options.n_train_tokens:,} predictions per epoch and direction: options " + ", ".join(
        [recipe.options, *changed]
    )
    n_steps = choice.n_steps or 0
    epochs = n_steps * _predictions(options, n_replicas) / (options.n_train_tokens or 1)
    measured = ", ".join(f"{name} {1000 * of.step:,.0f} ms" for name, of in times.items())
    yield f"{n_steps:,} steps, {epochs:.1f} epochs, in {choice.precision} (a step: {measured})"
    low, high = choice.perplexity
    yield (
        f"expected: {choice.hours:.2g} hours, held-out perplexity {low:,.0f} to {high:,.0f} if the "
        "held-out text is like the training text"
    )


def _predictions(options: RunOptions, n_replicas: int) -> float:
    """Return the number of predictions in a step, per direction."""
    return options.batch_size * options.unroll_steps * n_replicas


def _interpolated(points: Mapping[int, float], x: float) -> float:
    """Interpolate a function linearly between the logarithms of its points; constant beyond."""
    keys = sorted(points)
    values = [math.log(points[key]) for key in keys]
    return math.exp(np.interp(math.log(max(x, 1)), np.log(keys), values))
