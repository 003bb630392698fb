"""What a command owes the terminal: a Ctrl-C without a traceback, and standard streams that work.

Only Python's own modules are imported here, so that `start` comes before everything slow.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

OUTPUT = "standard output"
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 and the signal's number, as a shell reports them


def start() -> None:
    """Prepare a command's process; call it before the imports that take time."""
    _stop_at_once()
    replaced = sys.stdout is not sys.__stdout__  # by a test
    _open_closed_streams()
    # Text is UTF-8 on its way in, whatever the locale, and so it is on its way out. What is not,
    # in the name of a file, comes out as it came in.
    if not replaced:
        old: Any = sys.stdout
        by_line = old is None or old.line_buffering or old.write_through
        output = io.BufferedWriter(_Output(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(output, "utf-8", "surrogateescape", line_buffering=by_line)
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


class _Output(io.FileIO):
    """Standard output, which an error in writing to it names."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Have Ctrl-C raise KeyboardInterrupt in the block, so that what is half done is undone.

    Before and after the block Ctrl-C ends the process at once: during an import KeyboardInterrupt
    could turn into another error, and when Python shuts down into a traceback.

    Yields: an event that Ctrl-C sets, since the code that is interrupted may turn the exception
        into another one.
    """
    pressed = threading.Event()

    def handler(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    _on_interrupt(handler)
    try:
        yield pressed
    finally:
        _stop_at_once()


def output_error() -> OSError | None:
    """Write out what waits for standard output, and return the error if that fails.

    After an error nothing waits any more, so that Python does not stumble over it when it ends.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return error
    return None


def say(line: str) -> None:
    """Print a line on standard error, after the output, if anyone still reads them."""
    output_error()
    with suppress(OSError):  # there is no other place for it
        print(line, file=sys.stderr, flush=True)


def _stop_at_once() -> None:
    def handler(*_: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    _on_interrupt(handler)


def _on_interrupt(handler: Callable) -> None:
    # Who starts a command deaf to Ctrl-C, as `nohup` and a shell's background jobs do, means it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _open_closed_streams() -> None:
    """Keep the numbers 0 to 2 from the next files that are opened, which would get what is printed.

    To read closed standard input or to write closed standard output is an error, as in other
    tools; a log that nobody wants is none.
    """
    for number, way in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
