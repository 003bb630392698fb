"""The memory that a process keeps for itself between steps."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of the GNU C library


def keep_freed_memory() -> bool:
    """Have malloc keep what is freed, for this process, in place of giving it back at once.

    TensorFlow takes and frees every tensor of a step on the CPU. Large ones come from the operating
    system each time, which clears them page by page: a third of a training step. What the process
    keeps is bounded by the most that it ever held.

    Returns: whether the C library has that choice, as GNU's has.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, Windows, musl
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
