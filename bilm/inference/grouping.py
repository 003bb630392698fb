"""Batches words or sentences by length, so that little padding is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

ENCODER_CHARACTERS = 1 << 14  # most characters that the character CNN reads at a time
ENCODER_BYTES = 1 << 26  # maximum size in bytes of the results of all filters for these characters


def encoder_budget(filters: Iterable[tuple[int, int]]) -> int:
    """Return the most characters that a CNN with these filters (width, number) reads at a time."""
    n_filters = max(sum(n for _, n in filters), 1)
    return min(ENCODER_CHARACTERS, ENCODER_BYTES // (4 * n_filters))


def batches(lengths: np.ndarray, budget: int) -> Iterator[tuple[np.ndarray, int]]:
    """Divide items into batches, the longest first, so that the padded size of each batch does not
    exceed a budget.

    Yields: the indices of a batch's items, and the number of rows to pad it to. Only a few numbers
        are used, because oneDNN compiles and caches code for each shape.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        n_rows = max(budget // int(lengths[order[0]]), 1)
        rows, order = order[:n_rows], order[n_rows:]
        # 1, 2, 4, 8, then multiples of 8, and above 64 of 64.
        step = 64 if len(rows) > 64 else min(1 << (len(rows) - 1).bit_length(), 8)
        yield rows, min(-(-len(rows) // step) * step, n_rows)
