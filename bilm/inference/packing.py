"""Sequences of tokens packed end to end into rows, which run in windows of steps."""

import heapq
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from bilm.inference.backend import Backend, ByDirection, Window
from bilm.support.process import read_ahead
from bilm.tensors import FLOAT_BYTES, N_GATES

MAX_ROWS = 192  # more rows hardly speed up products, and their steps no longer fit the cache
GATE_BYTES = 1 << 29  # maximum size in bytes of the input's part of the gates in a window of steps
READING_ORDER = {"forward": slice(None), "backward": slice(None, None, -1)}  # of words by direction


class Packing(NamedTuple):
    """The places of sequences in a grid of rows and steps."""

    rows: np.ndarray  # row of each sequence, integer (n,)
    starts: np.ndarray  # first step of each sequence, integer (n,)
    shape: tuple[int, int]  # number of rows and of steps, (B, T)


def pack(lengths: np.ndarray, max_rows: int = MAX_ROWS) -> Packing:
    """Assign sequences by length, integer (n,), to the rows that end earliest, the longest first.

    The number of rows is the total length divided by the longest length, at most `max_rows`; above
    8, it is rounded up to a multiple of 8. The ends of rows differ by at most the longest length
    (Graham 1969, Bounds on multiprocessing timing anomalies).
    """
    n_rows = int(np.clip(lengths.sum() // lengths.max(), 1, max_rows))
    if n_rows > 8:
        n_rows = min(n_rows + -n_rows % 8, max_rows, len(lengths))

    ends = [(0, row) for row in range(n_rows)]  # a heap
    rows: np.ndarray = np.empty(len(lengths), np.int64)
    starts: np.ndarray = np.empty(len(lengths), np.int64)
    for i in np.argsort(-lengths, kind="stable"):
        start, row = ends[0]
        starts[i] = start
        rows[i] = row
        heapq.heapreplace(ends, (start + int(lengths[i]), row))
    return Packing(rows, starts, (n_rows, max(ends)[0]))


def run_windows(
    backend: Backend, packing: Packing, table: np.ndarray, places: ByDirection, batch_tokens: int
) -> Generator[tuple[slice, ByDirection], None, None]:
    """Yield the steps and the layers of one window of packed sequences after another. The next one
    is computed while the caller processes the last, if the backend allows it.

    Args:
        table: the vectors of tokens, float32 (U, P).
        places: see `Window`; all steps.
        batch_tokens: maximum number of tokens in a window.
    """
    n_rows, n_all = packing.shape
    is_start: np.ndarray = np.zeros(packing.shape, bool)
    is_start[packing.rows, packing.starts] = True
    gate_bytes = FLOAT_BYTES * N_GATES * backend.options.lstm.dim * len(places)  # per token
    n_steps = max(min(batch_tokens, GATE_BYTES // gate_bytes) // n_rows, 1)

    def windows():
        stacks = backend.one_row if n_rows == 1 and backend.one_row else backend.stacks
        vectors, state = stacks.start(table, n_rows)
        for start in range(0, n_all, n_steps):
            steps = slice(start, min(start + n_steps, n_all))
            part = {direction: rows[:, steps] for direction, rows in places.items()}
            window = Window(part, is_start[:, steps])
            layers, state = stacks.run_window(vectors, window, state)
            yield steps, layers

    runs_ahead = is_start.size > batch_tokens and backend.runs_ahead
    for window in read_ahead(windows(), 1, waits=True) if runs_ahead else windows():
        yield window
        backend.check_process()  # it may have been forked
