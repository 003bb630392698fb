"""How far long work has come: lines in the log, or what a program shows in their place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import TypeVar

from absl import logging

T = TypeVar("T")

LOG_SECONDS = 5
QUICK_SECONDS = 2  # work that takes less is not worth a word


class Progress:
    """Counts what is done, and logs the rate and the time left every few seconds.

    Args:
        what: is being done, such as "embedding".
        unit: of what is counted, such as "tokens".
        total: how many there are; None if nobody knows.
    """

    def __init__(self, what: str, unit: str, total: int | None = None):
        self.what, self.unit, self.total, self.done = what, unit, total, 0
        self.start = self._told = time.monotonic()
        self._timer: Timer | None = None

    def add(self, n: int) -> None:
        """Count `n` more that are done."""
        self.done += n
        if time.monotonic() - self._told >= LOG_SECONDS:
            self._told = time.monotonic()
            rate, left = self.speed()
            logging.info(
                "%s: %s %s, %s per second%s",
                self.what, f"{self.done:,}", self.unit, f"{rate:,.0f}",
                "" if left is None else f", {timedelta(seconds=left)} left",
            )  # fmt: skip

    def skip(self, n: int) -> None:
        """Leave out `n` of the total that were done before."""
        if self.total is not None:
            self.total -= n

    def over(self, values: Iterable[T]) -> Iterator[T]:
        """Pass values on, and count each when the next one is asked for."""
        for value in values:
            yield value
            self.add(1)

    def speed(self) -> tuple[float, int | None]:
        """Return how many are done per second, and the seconds left if that is known."""
        rate = self.done / max(time.monotonic() - self.start, 1e-9)
        if self.total is None or not rate:
            return rate, None
        return rate, round(max(self.total - self.done, 0) / rate)

    def go_on(self) -> None:
        """Tell of work that counts nothing, unless it is closed soon."""
        self._timer = Timer(QUICK_SECONDS, self._tell)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Stop reporting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _tell(self) -> None:
        logging.info("%s ...", self.what)


_make: Callable[[str, str, int | None], Progress] = Progress


def show_as(make: Callable[[str, str, int | None], Progress]) -> None:
    """Have progress shown by another class, such as a bar on a terminal; `Progress` is the log."""
    global _make
    _make = make


@contextmanager
def progress(what: str, unit: str, total: int | None = None) -> Iterator[Progress]:
    """Yield the `Progress` of some work, and close it at the end."""
    shown = _make(what, unit, total)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Tell of work whose end nobody can foretell, if it takes more than a moment.

    Args:
        what: is being done, such as "exporting".
    """
    with progress(what, "") as shown:
        shown.go_on()
        yield
