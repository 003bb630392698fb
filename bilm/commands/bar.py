"""A progress bar with rate and time left, where a person watches standard error."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from bilm.progress import QUICK_SECONDS, Progress

UPDATE_SECONDS = 0.1


def is_watched() -> bool:
    """Return whether standard error is a terminal that can show a bar."""
    can_show = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return can_show and find_spec("rich") is not None  # Keras brings it


class Bar(Progress):
    """A bar on standard error; what is logged meanwhile appears above it."""

    _shown: Any = None

    def __init__(self, what: str, unit: str, total: int | None = None):
        super().__init__(what, unit, total)
        self._next = self.start + QUICK_SECONDS

    def add(self, n: int) -> None:
        """Count `n` more that are done."""
        self.done += n
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + UPDATE_SECONDS
        if self._shown is None:
            self._show()
        rate, left = self.speed()
        self._shown.update(
            self._task,
            completed=self.done,
            total=self.total,
            rate=f"{rate:,.0f} {self.unit} per second",
            left="" if left is None else f"{timedelta(seconds=left)} left",
        )

    def close(self) -> None:
        """Take the bar away."""
        super().close()
        if self._shown is not None:
            self._shown.stop()
            _log_to(sys.stderr)
            self._shown = None

    def _tell(self) -> None:
        self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        fields: list[Any] = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rate", "left")]
        if self.total is None:
            fields.append(TimeElapsedColumn())
        self._shown = RichProgress(
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *fields,
            console=Console(stderr=True), redirect_stdout=False,
            transient=True, refresh_per_second=4,
        )  # fmt: skip
        self._task = self._shown.add_task(self.what, total=self.total, rate="", left="")
        self._shown.tasks[0].start_time = self.start
        self._shown.start()
        _log_to(sys.stderr)  # rich's, which prints above the bar


def _log_to(stream: Any) -> None:
    from absl import logging

    logging.get_absl_handler().python_handler.setStream(stream)
