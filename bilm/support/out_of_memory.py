"""Turns failed allocations into errors of one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bilm.errors import OutOfMemoryError


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Turn a failed allocation in the block into an error of one line.

    Args:
        what: the text or folder that was processed.
        smaller: the options whose reduction saves memory.
    Raises: OutOfMemoryError if the block runs out of memory.
    """
    try:
        yield
    except _memory_errors() as error:
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(f"{what}: out of memory ({reason}); reduce {smaller}") from None


def _memory_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of failed allocations, also TensorFlow's if it is in use."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return (MemoryError,)
    return MemoryError, tensorflow.errors.ResourceExhaustedError
