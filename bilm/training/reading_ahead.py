"""Values that a thread computes ahead of their use."""

import os
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from bilm.errors import BilmError

CHECK_SECONDS = 0.5  # between two looks of a waiting thread for the end of its `ReadAhead`

Value = TypeVar("Value")


class ReadAhead(Generic[Value]):
    """The values of an iterator, of which a thread computes some ahead.

    The thread raises no error itself: an error of the iterator is raised by `next` after the values
    before it. The thread ends soon after this object is deleted, and does not keep it or the
    program alive. The interpreter may end at any time, also while the iterator computes a value, if
    the iterator computes with Python and NumPy only: a thread of another library may wait forever
    for the interpreter that has ended.

    Args:
        values: the iterator, which only the thread may use from now on.
        n_ahead: maximum number of values that wait to be used.
    """

    def __init__(self, values: Iterator[Value], n_ahead: int):
        self._read: queue.Queue[tuple[bool, Any]] = queue.Queue(n_ahead)
        self._has_ended = False
        self._process = os.getpid()
        arguments = values, self._read, weakref.ref(self)
        threading.Thread(target=_read, args=arguments, name="reading ahead", daemon=True).start()

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        """Return the next value. Raises: BilmError in a fork of the process, which has no thread;
        StopIteration after the last value and after an error."""
        if os.getpid() != self._process:
            raise BilmError(
                "text is read ahead by a thread, which a forked process does not have; start "
                "reading after the fork"
            )
        if self._has_ended:
            raise StopIteration
        is_value, read = self._read.get()
        if is_value:
            return read
        self._has_ended = True
        raise read


def _read(values: Iterator, read: queue.Queue, reader: weakref.ref) -> None:
    """Put the values into a queue, and then the exception that ends them, until `reader` has been
    deleted."""
    is_value = True
    while is_value:
        item: Any
        try:
            item = next(values)
        except BaseException as error:
            item = error
            is_value = False
        while reader() is not None:
            try:
                read.put((is_value, item), timeout=CHECK_SECONDS)
                break
            except queue.Full:
                pass
        else:
            return
