"""Progress of long work: a bar of rich on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from absl import logging

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

T = TypeVar("T")

LOG_SECONDS = 5  # between two lines in the log
FIRST_SECONDS, BAR_SECONDS = 2, 0.1  # before a bar is shown, and between two updates

_bars = False


def show_bars(shown: bool) -> None:
    """Show progress as bars on standard error instead of lines in the log, or stop doing so."""
    global _bars
    _bars = shown


class Progress:
    """Reports the rate and the remaining time of some work every few seconds.

    Args:
        bar: the bar of rich, not yet shown, with one task.
        unit: what is counted, such as "tokens".
    """

    def __init__(self, bar: Bar, unit: str):
        self._bar, self.unit = bar, unit
        (self._task,) = bar.tasks
        self._next = time.monotonic() + (FIRST_SECONDS if _bars else LOG_SECONDS)

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

    def _report(self) -> None:
        """Show the bar, or write a line to the log."""
        task = self._task
        rate = f"{task.speed:,.0f} {self.unit} per second" if (task.speed or 0) >= 1 else ""
        if _bars:
            self._bar.start()
            _log_to_standard_error()  # rich has replaced it: the log appears above the bar
            self._bar.update(task.id, rate=rate, refresh=True)
        else:
            seconds = task.time_remaining
            left = "" if seconds is None else f"{timedelta(seconds=seconds)} left"
            done = f"{task.description}: {task.completed:,.0f} {self.unit}"
            logging.info("%s", ", ".join(filter(None, [done, rate, left])))
        self._next = time.monotonic() + (BAR_SECONDS if _bars else LOG_SECONDS)


def _log_to_standard_error() -> None:
    logging.get_absl_handler().python_handler.setStream(sys.stderr)


@contextmanager
def progress(what: str, unit: str, total: int | None = None) -> Iterator[Progress]:
    """Yield the `Progress` of some work, and remove its bar at the end.

    Args:
        what: name of the work, such as "embedding".
        unit: what is counted, such as "tokens".
        total: number of units; None if it is unknown.
    """
    from rich import progress as rich
    from rich.console import Console

    bar = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TimeElapsedColumn() if total is None else rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        auto_refresh=False,  # without a thread: see `bilm.embedding.backends.numpy.one_blas_thread`
    )
    bar.add_task(what, total=total, rate="")
    try:
        yield Progress(bar, unit)
    finally:
        if bar.live.is_started:
            bar.stop()
            _log_to_standard_error()
