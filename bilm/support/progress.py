"""Progress of long work, as lines in the log."""

import math
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from absl import logging

T = TypeVar("T")

LOG_SECONDS = 10  # between two lines


class Progress:
    """Logs the rate and the remaining time of some work every few seconds after its first units,
    such as "tokens", whose number `total` is None if it is unknown. `n_done`: number of units."""

    def __init__(self, what: str, unit: str, total: int | None = None):
        self.what = what
        self.unit = unit
        self.total = total
        self.n_done = self._n_first = 0
        self._start = self._next = math.inf

    def add(self, n: int) -> None:
        """Count `n` more units."""
        now = time.monotonic()
        self.n_done += n
        if self._start == math.inf:  # the first units may include compiling
            self._n_first = n
            self._start = now
            self._next = now + LOG_SECONDS
        elif now >= self._next:
            self._next = now + LOG_SECONDS
            rate = (self.n_done - self._n_first) / max(now - self._start, 1e-9)
            line = f"{self.what}: {self.n_done:,} {self.unit}, {rate:,.0f} per second"
            if self.total and rate:
                seconds = max(self.total - self.n_done, 0) / rate
                line += f", {timedelta(seconds=round(seconds))} left"
            logging.info("%s", line)

    def skip(self, n: int) -> None:
        """Subtract `n` units, which were done before, from the total."""
        self.total = None if self.total is None else self.total - n

    def over(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values, and count each when the next one is requested."""
        for value in values:
            yield value
            self.add(1)
