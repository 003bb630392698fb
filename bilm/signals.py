"""A run that is asked to stop finishes its step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C or SIGTERM sets, so that the step is finished and saved.

    The second signal, of either kind, does what it did before.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def set_once(*_):
        stop.set()
        restore()

    def restore():
        for number, handler in previous.items():
            signal.signal(number, handler)

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, set_once)
    try:
        yield stop
    finally:
        restore()
