"""An iterator that computes one value ahead of its reader."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
END = object()


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield the values of an iterator, computing each while the reader uses the one before it.

    The iterator runs in a thread of its own; operations of TensorFlow and NumPy release the
    interpreter lock there. At most one value is waiting. Errors of the iterator are raised here. A
    reader that stops early waits for the value that is being computed.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        following = thread.submit(next, values, END)
        while (value := following.result()) is not END:
            following = thread.submit(next, values, END)
            yield value
