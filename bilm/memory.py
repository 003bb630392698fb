"""Memory that does not suffice ends in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from bilm.errors import OutOfMemoryError


@contextmanager
def explaining_memory(what: str, smaller: str) -> Iterator[None]:
    """Say in one line what was being done when memory ran out, and what to make smaller.

    Raises: OutOfMemoryError.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        reason = next(iter(str(error).strip().splitlines()), "no memory left")
        raise OutOfMemoryError(
            f"{what}: out of memory ({reason}); make {smaller} smaller"
        ) from None
