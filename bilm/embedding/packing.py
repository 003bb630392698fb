"""Sentences end to end in rows that run side by side, so that hardly a step is padding."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

MAX_ROWS = 192  # more hardly make products faster, and their steps no longer fit a cache


class Packing(NamedTuple):
    """Where each sentence lies in a grid of rows and steps: `rows`, `starts` integer (n,)."""

    rows: np.ndarray
    starts: np.ndarray
    n_rows: int
    n_steps: int


def pack(lengths: np.ndarray, max_rows: int = MAX_ROWS) -> Packing:
    """Deal sentences out to rows, the longest first, each to the row that ends earliest.

    There are as few rows as the longest sentence allows without having the others wait for it, and
    their ends differ by no more than it (R. L. Graham 1969, Bounds on multiprocessing timing
    anomalies).

    Args:
        lengths: steps of each sentence, integer (n,), n and all of them above 0.
        max_rows: the most rows.
    """
    n_rows = int(np.clip(lengths.sum() // lengths.max(), 1, max_rows))
    n_rows = min(n_rows + -n_rows % 8, max_rows, len(lengths)) if n_rows > 8 else n_rows
    ends = [(0, row) for row in range(n_rows)]
    rows, starts = (np.empty(len(lengths), np.int64) for _ in range(2))
    for i in np.argsort(-lengths, kind="stable"):
        starts[i], rows[i] = ends[0]
        heapq.heapreplace(ends, (int(starts[i] + lengths[i]), int(rows[i])))
    return Packing(rows, starts, n_rows, max(ends)[0])
