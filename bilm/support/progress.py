"""Progress of long work: a bar of rich on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from typing import TextIO, TypeVar

from absl import logging

T = TypeVar("T")

LOG_SECONDS = 5
QUICK_SECONDS = 2  # work that takes less time is not reported

_bars = False


def show_bars(shown: bool) -> None:
    """Show progress as bars on standard error instead of lines in the log, or stop doing so."""
    global _bars
    _bars = shown


class Progress:
    """Reports the rate and the remaining time of some work every few seconds.

    Args:
        what: name of the work, such as "embedding".
        unit: what is counted, such as "tokens"; empty for work that counts nothing.
        total: number of units; None if it is unknown.
    """

    def __init__(self, what: str, unit: str, total: int | None = None):
        from rich import progress as rich
        from rich.console import Console

        self.what, self.unit = what, unit
        self._next = time.monotonic() + (QUICK_SECONDS if _bars else LOG_SECONDS)
        self._is_shown = False
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            *([rich.TextColumn("{task.fields[rate]}")] if unit else []),
            rich.TimeElapsedColumn() if total is None else rich.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            disable=not _bars,
            # Without a thread for counted work: see `one_blas_thread` in `embedding`.
            auto_refresh=not unit,
        )
        self._bar.add_task(what, total=total, rate="")
        (self._task,) = self._bar.tasks
        # Work that counts nothing is reported once, by a timer.
        self._timer = Timer(QUICK_SECONDS, self._report)
        self._timer.daemon = True
        if not unit:
            self._timer.start()

    def add(self, n: int) -> None:
        """Count `n` more units."""
        self._bar.advance(self._task.id, n)
        if time.monotonic() >= self._next:
            self._report()

    def skip(self, n: int) -> None:
        """Subtract `n` units, which were done before, from the total."""
        if self._task.total is not None:
            self._bar.update(self._task.id, total=self._task.total - n)

    def over(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values, and count each when the next one is requested."""
        for value in values:
            yield value
            self.add(1)

    def close(self) -> None:
        """Stop reporting and remove the bar."""
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()
        if self._is_shown:
            self._bar.stop()
            _log_to(sys.stderr)

    def _report(self) -> None:
        """Show the bar, or write a line to the log."""
        speed, seconds = self._task.speed, self._task.time_remaining
        rate = f"{speed:,.0f} {self.unit} per second" if speed and speed >= 1 else ""
        if not _bars:
            self._next = time.monotonic() + LOG_SECONDS
            done = f"{self.what}: {self._task.completed:,.0f} {self.unit}"
            left = "" if seconds is None else f"{timedelta(seconds=seconds)} left"
            parts = [done, rate, left] if self.unit else [f"{self.what} ..."]
            logging.info("%s", ", ".join(filter(None, parts)))
            return
        self._next = time.monotonic() + 0.1
        self._bar.update(self._task.id, rate=rate, refresh=True)
        if not self._is_shown:
            self._is_shown = True
            self._bar.start()
            _log_to(sys.stderr)  # rich has replaced it: the log appears above the bar


def _log_to(stream: TextIO) -> None:
    logging.get_absl_handler().python_handler.setStream(stream)


@contextmanager
def progress(what: str, unit: str = "", total: int | None = None) -> Iterator[Progress]:
    """Yield the `Progress` of some work, and close it at the end; see there for the arguments.

    Without a unit, the work is reported once, if it takes more than a moment.
    """
    shown = Progress(what, unit, total)
    try:
        yield shown
    finally:
        shown.close()
