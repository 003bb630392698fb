"""One clear line when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from bilm.errors import OutOfMemoryError


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Report in one line what needed too much memory, and what to make smaller.

    Raises: OutOfMemoryError if the block runs out of memory.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(
            f"{what}: out of memory ({reason}); make {smaller} smaller"
        ) from None
