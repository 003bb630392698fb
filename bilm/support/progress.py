"""Progress of long work: a bar of rich on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from threading import Timer
from typing import TYPE_CHECKING, TextIO, TypeVar

from absl import logging

if TYPE_CHECKING:
    import rich.progress

T = TypeVar("T")

LOG_SECONDS = 5
QUICK_SECONDS = 2  # work that takes less time is not reported

_bars = False


def show_bars(shown: bool) -> None:
    """Show progress as bars on standard error instead of lines in the log, or stop doing so."""
    global _bars
    _bars = shown


def can_show_bars() -> bool:
    """Return whether standard error is a terminal that can show a bar."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return is_terminal and find_spec("rich") is not None


class Progress:
    """Reports the rate and the remaining time of some work every few seconds.

    Args:
        what: name of the work, such as "embedding".
        unit: what is counted, such as "tokens"; empty for work that counts nothing.
        total: number of units; None if it is unknown.
    """

    def __init__(self, what: str, unit: str, total: int | None = None):
        from rich.progress import (
            BarColumn,
            ProgressColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        self.what, self.unit = what, unit
        self._next = time.monotonic() + (QUICK_SECONDS if _bars else LOG_SECONDS)
        self._is_shown = False
        columns: list[ProgressColumn] = [
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
        ]
        if unit:
            columns.append(TextColumn("{task.fields[rate]}"))
        columns.append(TimeElapsedColumn() if total is None else TimeRemainingColumn())
        self._bar = Bar(
            *columns, console=_console(), transient=True, redirect_stdout=False, disable=not _bars
        )
        self._task = self._bar.add_task(what, total=total, rate="")
        # Work that counts nothing is reported once, by a timer.
        self._timer = Timer(QUICK_SECONDS, self._report)
        self._timer.daemon = True
        if not unit:
            self._timer.start()

    def add(self, n: int) -> None:
        """Count `n` more units."""
        self._bar.advance(self._task, n)
        if time.monotonic() >= self._next:
            self._report()

    def skip(self, n: int) -> None:
        """Subtract `n` units, which were done before, from the total."""
        if (total := self._state.total) is not None:
            self._bar.update(self._task, total=total - n)

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

    @property
    def _state(self) -> rich.progress.Task:
        return self._bar.tasks[0]

    def _report(self) -> None:
        """Show the bar, or write a line to the log."""
        rate, left = self._speed()
        if not _bars:
            self._next = time.monotonic() + LOG_SECONDS
            done = f"{self.what}: {self._state.completed:,.0f} {self.unit}"
            parts = [done, rate, left] if self.unit else [f"{self.what} ..."]
            logging.info("%s", ", ".join(filter(None, parts)))
            return
        self._next = time.monotonic() + 0.1
        self._bar.update(self._task, rate=rate)
        if not self._is_shown:
            self._is_shown = True
            self._bar.start()
            _log_to(sys.stderr)  # rich has replaced it: the log appears above the bar

    def _speed(self) -> tuple[str, str]:
        """Return the rate and the remaining time as text; empty if unknown."""
        rate, seconds = self._state.speed, self._state.time_remaining
        left = "" if seconds is None else f"{timedelta(seconds=seconds)} left"
        return "" if rate is None else f"{rate:,.0f} {self.unit} per second", left


def _console() -> rich.console.Console:
    from rich.console import Console

    return Console(stderr=True)


def _log_to(stream: TextIO) -> None:
    logging.get_absl_handler().python_handler.setStream(stream)


@contextmanager
def progress(what: str, unit: str, total: int | None = None) -> Iterator[Progress]:
    """Yield the `Progress` of some work, and close it at the end; see there for the arguments."""
    shown = Progress(what, unit, total)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Report work without a countable unit if it takes more than a moment.

    Args:
        what: name of the work, such as "exporting".
    """
    with progress(what, ""):
        yield
