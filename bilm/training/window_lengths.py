"""The lengths of the windows of a run."""

from __future__ import annotations

import numpy as np

from bilm.options.run_options import RunOptions

PURPOSE = 1  # keeps these random numbers apart from those of the negatives


class WindowLengths:
    """Number of steps T of each window, a function of seed and step alone.

    With the option `short_window_probability`, a window has half of `unroll_steps` steps with this
    probability (Merity et al. 2018, arXiv:1708.02182). All replicas and both directions have
    windows of the same length. There are only two lengths, because the graph of a training step is
    compiled for each length.

    Attributes: `possible`, the lengths, longest first; `vary`, whether there are two.
    """

    def __init__(self, options: RunOptions, seed: int):
        self.seed, self.probability = seed, options.short_window_probability
        self.possible = options.window_lengths
        self.vary = len(self.possible) > 1

    def at(self, step: int) -> int:
        """Return the length of the window of a step, from 0."""
        if not self.vary:
            return self.possible[0]
        key = np.random.SeedSequence([self.seed, step], spawn_key=(PURPOSE,))
        is_short = np.random.Generator(np.random.Philox(key)).random() < self.probability
        return self.possible[is_short]
