"""Standard streams and Ctrl-C: what a command prepares before the imports that take time.

This module imports only the standard library, so that `start` can run first.
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
INTERRUPTED = 130  # exit status after Ctrl-C: 128 plus the number of the signal, as in shells
KEPT = "\t\n"
CONTROLS = {
    code: f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0))  # C0, DEL and C1
    if chr(code) not in KEPT
}


def start() -> None:
    """Prepare the streams and Ctrl-C of a command's process."""
    _exit_on_interrupt()
    is_replaced = sys.stdout is not sys.__stdout__  # by a test
    _open_closed_streams()
    # Output is UTF-8 in every locale, as input is. Bytes of a file name that are not UTF-8 are
    # printed unchanged.
    if not is_replaced:
        old = sys.stdout
        by_line = not isinstance(old, io.TextIOWrapper) or old.line_buffering or old.write_through
        output = io.BufferedWriter(_Output(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(output, "utf-8", "surrogateescape", line_buffering=by_line)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


class _Output(io.FileIO):
    """Standard output; errors in writing to it carry its name."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Make Ctrl-C raise KeyboardInterrupt inside the block, so that temporary files are removed.

    Before and after the block, Ctrl-C ends the process at once: during an import the exception
    could become another one, and during the exit of Python it would print a traceback.

    Yields: an event that Ctrl-C sets; the interrupted code may replace the exception by another.
    """
    pressed = threading.Event()

    def handler(*_: object) -> None:
        pressed.set()
        raise KeyboardInterrupt

    _on_interrupt(handler)
    try:
        yield pressed
    finally:
        _exit_on_interrupt()


def printable(text: str) -> str:
    r"""Return the text with control characters escaped, such as `\x1b`; tabs and line ends stay.

    Text from files could otherwise move the cursor of a terminal or change its title.
    """
    return text.translate(CONTROLS)


def output_error() -> OSError | None:
    """Flush standard output and return the error if that fails.

    After an error, the unwritten text is discarded, so that Python does not fail at exit.
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
    """Print a line on standard error after the output; ignore errors in writing it."""
    output_error()
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


def _exit_on_interrupt() -> None:
    def handler(*_: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(INTERRUPTED)

    _on_interrupt(handler)


def _on_interrupt(handler: Callable[..., None]) -> None:
    # `nohup` and the background jobs of a shell ignore Ctrl-C on purpose.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _open_closed_streams() -> None:
    """Open closed standard streams, so that no other file gets the descriptors 0 to 2.

    Reading closed standard input and writing closed standard output are errors, as in other
    tools. A closed standard error discards the log.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free descriptor
    if sys.stderr is None:
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
