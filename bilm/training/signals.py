"""SIGINT and SIGTERM during training."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets, so that the step is finished and saved.

    A second signal, of either kind, has its previous effect. A signal that the process ignores, as
    Ctrl-C under `nohup` or in the background of a shell, stays ignored.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    previous: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def set_once(*_: object) -> None:
        stop.set()
        restore()

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        # None is a handler that Python did not install and cannot install again.
        if handler not in (signal.SIG_IGN, None):
            previous[number] = handler
            signal.signal(number, set_once)
    try:
        yield stop
    finally:
        restore()
