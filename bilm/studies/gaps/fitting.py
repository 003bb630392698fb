"""Makes the memory of a training text: fits the weights of the features to the remembered text; the
shares of the mixture with the biLM, and what a `Filler` compares by, to held-out text."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
from absl import logging

from bilm.data import sentence_digest
from bilm.errors import DataError
from bilm.scoring import Logs, Perplexity, Score, Scorer, TextLosses, sentences_to_score
from bilm.studies.gaps.filling import DOUBT, N_FITTED, Filler, n_predictions
from bilm.studies.gaps.memory import FLOOR, Memory
from bilm.studies.gaps.remembered_text import OFFSETS, REACH, RememberedText
from bilm.support import Progress

FIRST_WEIGHTS = (1.5, 1.0, 0.3, 0.3, 0.3)  # of the features, before they are fitted
FIRST_SHARE = 0.5  # of the biLM in the mixture, before it is fitted
# Exponents before they are fitted, about the mean of fitted ones
MODEL_EXPONENT = 0.6  # divided among the directions of the model
# By the names of the factors in `Memory.log_probabilities`
MEMORY_EXPONENTS = {"both": 0.2, "forward": 0.5, "backward": 0.5, "frequency": -0.9}
MAX_FITTED = 200_000  # ids of the text that the weights are fitted on
N_STEPS = 200  # of Adam, for each view
N_QUERIES = 20  # predictions per step
RATE = 0.05  # learning rate
WEIGHT_DECAY = 2e-4
MEAN_RATE = 0.1  # share of a new gradient in its average
SQUARE_RATE = 0.01  # share of a new squared gradient in its average
MIXING_STEPS = 30  # of expectation maximization
MIN_SHARE = 1e-6  # of the biLM and of the memory
NEAR_BOUND = 1e-3  # a smaller share causes a warning
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
    digests = remembered.digests
    new = [pair for pair in scored if sentence_digest(pair[0].tokens) not in digests]
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


def fit_memory(
    text: RememberedText, n_directions: int, n_steps: int = N_STEPS, bar: Progress | None = None
) -> Memory:
    """Return the memory of a text, with fitted weights; what is fitted to held-out text has its
    first values. Raises: DataError if fewer than 2 sentences contain words."""
    end_of_part = np.full(REACH, text.nothing)
    part = RememberedText(np.append(text.ids[:MAX_FITTED], end_of_part), text.vocabulary)
    n_sentences = len(np.unique(part.sentence[part.is_predicted["both"]]))
    if n_sentences < 2:
        raise DataError(f"number of sentences with words: {n_sentences}; expected 2 or more")
    weights = {view: fit_view(part, view, n_steps, bar) for view in OFFSETS}
    of_model = [MODEL_EXPONENT / n_directions] * n_directions
    exponents = np.array([*of_model, *MEMORY_EXPONENTS.values()])
    return Memory(text, weights, np.full(n_directions, FIRST_SHARE), exponents, np.array(DOUBT))


def fit_view(
    text: RememberedText, view: str, n_steps: int, bar: Progress | None = None
) -> np.ndarray:
    """Return the weights of a view that maximize the log-probability of words of the text, by Adam
    (Kingma and Ba 2015, arXiv:1412.6980), whose rate decreases in the second half of the steps."""
    weights = np.tile(FIRST_WEIGHTS, (len(OFFSETS[view]) + 1, 1))
    weights[-1, 0] = 0  # words of the sentence that are not rare do not count
    places = np.flatnonzero(text.is_predicted[view])
    rng = np.random.default_rng(0)
    mean = np.zeros_like(weights)  # average of gradients
    square = np.zeros_like(weights)  # average of their squares
    for step in range(1, n_steps + 1):
        queries = rng.choice(places, N_QUERIES)
        gradients = [log_gradient(text, view, weights, place) for place in queries]
        gradient = np.mean(gradients, axis=0) - WEIGHT_DECAY * weights

        # The averages, which start from zero, and the sum of the shares of all gradients in each
        mean = (1 - MEAN_RATE) * mean + MEAN_RATE * gradient
        square = (1 - SQUARE_RATE) * square + SQUARE_RATE * gradient**2
        mean_weight = 1 - (1 - MEAN_RATE) ** step
        square_weight = 1 - (1 - SQUARE_RATE) ** step

        rate = RATE * min(1, 2 - 2 * step / n_steps)
        deviation = np.sqrt(square / square_weight)
        weights = weights + rate / mean_weight * mean / (deviation + 1e-8)
        if bar is not None:
            bar.add(N_QUERIES)
    return weights


def log_gradient(text: RememberedText, view: str, weights: np.ndarray, place: int) -> np.ndarray:
    """Return the gradient of log P(word at a place of the text) by the weights of a view, float64
    (offsets + 1, features). The prediction leaves out the sentence of the place."""
    word = int(text.ids[place])
    number = text.sentence[place]
    start = np.searchsorted(text.sentence, number)  # the numbers ascend
    end = np.searchsorted(text.sentence, number + 1)
    own = slice(start, end)

    # Features of the context, and the share of each place of the text
    sentence = text.ids[own]
    sentence = sentence[sentence != text.nothing]
    matches = text.matches(view, sentence, place - text.starts[number])
    is_used = text.is_predicted[view].copy()
    is_used[own] = False
    share = text.place_shares(weights, matches, is_used)  # N

    # Derivative by the similarity s_i of each place: c * ([w_i = word] - total) * share_i
    places = text.places(word)
    total = share[places].sum()
    probability = (1 - FLOOR) * total + FLOOR * text.frequencies[word]
    by_place = -total * share
    by_place[places] += share[places]
    by_place *= (1 - FLOOR) / probability
    by_sentence = np.add.reduceat(by_place, text.starts)  # S

    # Derivative by the features of each list, and by the weights
    by_cell = np.concatenate([by_place, by_sentence])[matches.cells]  # M
    starts = np.cumsum(matches.lengths) - matches.lengths
    by_list = np.add.reduceat(by_cell, starts)  # L
    gradient = np.zeros_like(weights)
    np.add.at(gradient, matches.rows, by_list[:, None] * matches.phi)
    return gradient


def fit_shares(scored: Sequence[tuple[Score, Logs]]) -> np.ndarray:
    """Return the shares of the biLM in the mixture by direction, float64 (directions,), that
    maximize the probability of held-out sentences, by expectation maximization. `scored`: for each
    sentence its score by the biLM and `Memory.sentence_log_probabilities`."""
    shares = []
    for direction in scored[0][0].logs:
        logs = np.concatenate([score.logs[direction] for score, _ in scored], dtype=np.float64)
        by_model = np.exp(logs)  # n, the words of all sentences
        by_memory = np.exp(np.concatenate([logs[direction] for _, logs in scored]))  # n

        share = FIRST_SHARE
        for _ in range(MIXING_STEPS):
            mixture = share * by_model + (1 - share) * by_memory
            share = float(np.mean(share * by_model / mixture))
        share = min(max(share, MIN_SHARE), 1 - MIN_SHARE)
        if not NEAR_BOUND < share < 1 - NEAR_BOUND:
            logging.warning(
                "share of the biLM in the mixture (%s) is at its bound: %g; train the biLM longer, "
                "or use held-out text that is neither a copy of the training text nor unlike it",
                direction, share,
            )  # fmt: skip
        shares.append(share)
    return np.array(shares)
