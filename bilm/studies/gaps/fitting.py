"""Fits a memory: the weights of the features to the remembered text; the shares of the mixture with
the biLM, and the exponents with which a `Filler` compares candidates, to held-out text."""

from collections.abc import Sequence

import numpy as np
from absl import logging

from bilm.errors import DataError
from bilm.scoring import Logs, Score
from bilm.studies.gaps.memory import FLOOR, Memory
from bilm.studies.gaps.remembered_text import OFFSETS, REACH, RememberedText
from bilm.support import Progress

FIRST_WEIGHTS = (1.5, 1.0, 0.3, 0.3, 0.3)  # of the features, before they are fitted
FIRST_SHARE = 0.5  # of the biLM in the mixture, before it is fitted
# Exponents before they are fitted, about the mean of fitted ones
MODEL_EXPONENT = 0.6  # divided among the directions of the model
# By the names of the factors in `Memory.log_probabilities`
MEMORY_EXPONENTS = {"both": 0.2, "forward": 0.5, "backward": 0.5, "frequency": -0.9}
DOUBT = (0.0, 1.0)  # intercept and slope before they are fitted
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
PRIOR = 0.06  # precision of the normal prior of an exponent, per fitted word
DOUBT_PRIOR = 0.001  # of intercept and slope of the doubt
NEWTON_STEPS = 20


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
    is_other = text.sentence != number

    # Features of the context, and the share of each place of the text
    sentence = text.ids[~is_other]
    sentence = sentence[sentence != text.nothing]
    matches = text.matches(view, sentence, place - text.starts[number])
    share = text.place_shares(weights, matches, text.is_predicted[view] & is_other)  # N

    # Derivative by the similarity s_i of each place: c * ([w_i = word] - total) * share_i
    places = text.places(word)
    total = share[places].sum()
    probability = (1 - FLOOR) * total + FLOOR * text.frequencies[word]
    by_place = -total * share
    by_place[places] += share[places]
    by_place *= (1 - FLOOR) / probability
    by_sentence = np.add.reduceat(by_place, text.starts)  # S
    return matches.gradient(np.concatenate([by_place, by_sentence]), weights)


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


def fit_exponents(
    words: Sequence[np.ndarray], first: np.ndarray, prior: float = PRIOR
) -> np.ndarray:
    """Return the exponents that maximize the probability of words among their candidates, with a
    normal prior around the first ones, float64 (factors,), by Newton's method. `words`: the
    logarithms of the factors of the candidates of each word minus those of the word itself, float64
    (candidates, factors). `prior`: precision per word."""
    precision = prior * max(len(words), 1) * np.eye(len(first))

    def log_posterior(exponents: np.ndarray) -> float:
        losses = [np.logaddexp.reduce(logs @ exponents) for logs in words]
        distance = exponents - first
        return -sum(losses) - distance @ precision @ distance / 2

    exponents = first
    for _ in range(NEWTON_STEPS):
        # Gradient, and the Hessian with the opposite sign, of the prior
        gradient = precision @ (first - exponents)
        curvature = precision.copy()

        # and of each word: minus the mean and plus the covariance of its candidates' factors
        for logs in words:
            product = logs @ exponents
            share = np.exp(product - np.logaddexp.reduce(product))
            mean = share @ logs
            gradient -= mean
            curvature += (share * logs.T) @ logs - np.outer(mean, mean)

        step = np.linalg.solve(curvature, gradient)
        while log_posterior(exponents + step) < log_posterior(exponents):
            step /= 2
        exponents = exponents + step
    return exponents
