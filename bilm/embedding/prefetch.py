"""An iterator that is one value ahead of whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
END = object()


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator gives, each value being made while the one before it is used.

    The iterator runs in a thread of its own, in which an operation of TensorFlow or NumPy leaves
    the interpreter to others. One value is waiting at most. What it raises is raised here; a
    reader who stops early waits for the value that is being made.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        following = thread.submit(next, values, END)
        while (value := following.result()) is not END:
            following = thread.submit(next, values, END)
            yield value
