"""Signals that stop a training run."""

import signal
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

ONCE = {signal.SIGINT, signal.SIGTERM}
# Systems send these again, and before or after SIGTERM. Windows has none of them.
REPEATED = {getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name)}


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that a signal sets, so that the step is finished and saved: Ctrl-C, SIGTERM,
    SIGHUP of a closed terminal, or SIGUSR1, as Slurm's `--signal=USR1@120` sends it.

    A second Ctrl-C or SIGTERM has its previous effect. A signal that the process ignores, as Ctrl-C
    under `nohup` or in the background of a shell, stays ignored.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    previous: dict[int, Any] = {}

    def restore(numbers: Set[int]) -> None:
        for number in previous.keys() & numbers:
            signal.signal(number, previous[number])

    def stop_run(number: int, _: object) -> None:
        stop.set()
        if number in ONCE:
            restore(ONCE)

    for number in ONCE | REPEATED:
        handler = signal.getsignal(number)
        # None is a handler that Python did not install and cannot install again.
        if handler not in (signal.SIG_IGN, None):
            previous[number] = handler
            signal.signal(number, stop_run)
    try:
        yield stop
    finally:
        restore(ONCE | REPEATED)
