"""The exponents with which a `Filler` multiplies the factors of a candidate::

    P(candidate) is proportional to the product of factor ** exponent

With a memory, they are fitted to held-out words by the maximum of the posterior probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MODEL_EXPONENT = 0.6  # of the model with a memory, divided among its directions
MEMORY_EXPONENTS = (0.2, 0.5, 0.5, -0.9)  # of the views of the memory and of word frequency
PRIOR = 0.06  # precision of the normal prior of an exponent, per fitted word
NEWTON_STEPS = 20


def first_exponents(n_directions: int, has_memory: bool) -> np.ndarray:
    """Return the exponents before they are fitted, float64 (factors,).

    With a memory, they are about the mean of fitted ones. Without one, the product is the geometric
    mean over the directions.
    """
    if not has_memory:
        return np.full(n_directions, 1 / n_directions)
    return np.array([MODEL_EXPONENT / n_directions] * n_directions + [*MEMORY_EXPONENTS])


def fit_exponents(words: Sequence[np.ndarray], first: np.ndarray) -> np.ndarray:
    """Maximize the probability of words among their candidates, with a normal prior around the
    first exponents, by Newton's method.

    Args:
        words: for each word the logarithms of the factors of its candidates minus those of the word
            itself, float64 (candidates, factors).
        first: the first exponents, float64 (factors,).
    """
    precision = PRIOR * max(len(words), 1) * np.eye(len(first))

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
