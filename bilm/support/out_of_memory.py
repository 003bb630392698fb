"""Turns failed allocations into errors of one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bilm.errors import OutOfMemoryError


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Turn a failed allocation in the block into an OutOfMemoryError of one line, with the text or
    folder that was processed and the options whose reduction saves memory."""
    try:
        yield
    except Exception as error:
        tensorflow = sys.modules.get("tensorflow")  # None if it is not in use
        exhausted = tensorflow.errors.ResourceExhaustedError if tensorflow else MemoryError
        if not isinstance(error, MemoryError | exhausted):
            raise
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(f"{what}: out of memory ({reason}); reduce {smaller}") from None
