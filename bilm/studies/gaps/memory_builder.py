"""Makes the memory of a training text."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from absl import logging

from bilm.errors import DataError
from bilm.scoring import Perplexity, Scorer, TextLosses, sentences_to_score
from bilm.studies.gaps.filling import N_FITTED, Filler, n_predictions
from bilm.studies.gaps.fitting import N_QUERIES, N_STEPS, fit_memory, fit_shares
from bilm.studies.gaps.memory import Memory
from bilm.studies.gaps.remembered_text import OFFSETS, RememberedText
from bilm.support import Progress

SHARE_COMPARED = 0.6  # about the share of words whose sentence is scored with each candidate
N_TIMED = 100  # sentences that are scored again to know the time of a score
MIN_WORK = 0.05  # share of the useful work that is done in any time


def build_memory(
    scorer: Scorer,
    text: Iterable[Sequence[str]],
    heldout: Iterable[Sequence[str]],
    hours: float | None = None,
) -> tuple[Memory, Perplexity, Perplexity, float]:
    """Return the memory of a training text, fitted to the held-out sentences that it does not
    contain, their perplexities with and without it, and the share of unknown words. `hours`: time
    budget; None for as long as is useful. Raises: DataError for too few words."""
    started = time.monotonic()
    scores = list(scorer.score(heldout))
    lengths = [len(score.tokens) for score in scores]
    n_words = sum(lengths)
    if not n_words:
        raise DataError("held-out text: found no words, expected at least one sentence")

    # Some again, as the first ones compile the model
    again = [score.tokens for score in scores[:N_TIMED]]
    first = time.monotonic()
    n_again = sum(score.n_predictions for score in scorer.score(again))
    seconds_per_score = (time.monotonic() - first) / n_again
    remembered = RememberedText.of(sentences_to_score(text), scorer.vocabulary)
    n_directions = len(scorer.directions)

    # A first step measures the time of a prediction of the memory, the unit of all work.
    first = time.monotonic()
    fit_memory(remembered, n_directions, 1)
    seconds = (time.monotonic() - first) / (N_QUERIES * len(OFFSETS))
    n_scored = sum(n * n_predictions(n) for n in lengths) / n_words * SHARE_COMPARED
    of_word = math.ceil(n_scored * seconds_per_score / seconds)
    of_reading = n_directions * (n_words + len(scores))
    useful = N_STEPS * N_QUERIES * len(OFFSETS) + N_FITTED * of_word
    share = 1.0
    if hours is not None:
        available = 3600 * hours - (time.monotonic() - started)
        share = min(max(available / seconds - of_reading, MIN_WORK * useful) / useful, 1.0)
    n_steps, n_fitted = math.ceil(share * N_STEPS), math.ceil(share * N_FITTED)
    total = math.ceil(share * useful) + of_reading
    logging.info(
        "about %s: %d of %d steps and %d of %d words to fit the memory; more than %.2g hours bring "
        "nothing", timedelta(seconds=round(total * seconds)), n_steps, N_STEPS, n_fitted, N_FITTED,
        (useful + of_reading) * seconds / 3600,
    )  # fmt: skip
    bar = Progress("making the memory", "predictions", total)

    memory = fit_memory(remembered, n_directions, n_steps, bar)
    scored = []
    for score in scores:
        scored.append((score, memory.sentence_log_probabilities(score.tokens, score.logs)))
        bar.add(n_directions * score.n_predictions)

    # Fit to the sentences that the text does not contain
    new = [(score, logs) for score, logs in scored if not memory.contains(score.tokens)]
    if new:
        memory = replace(memory, shares=fit_shares(new))
    filler = Filler(scorer, memory=memory)
    exponents, doubt = filler.fit([score.tokens for score, _ in new], n_fitted, bar, of_word)

    losses = TextLosses(memory)
    for score, logs in scored:
        losses.add(score, logs)
    alone, mixed = losses.perplexities("held-out text")
    assert mixed is not None
    unknown = sum(len(score.unknown) for score in scores) / n_words
    return replace(memory, exponents=exponents, doubt=doubt), mixed, alone, unknown
