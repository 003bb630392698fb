"""Packing of sentences into rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilm.inference.packing import pack


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 20))
def test_packed_sentences_do_not_overlap(lengths, max_rows):
    lengths = np.array(lengths)
    packing = pack(lengths, max_rows)
    n_rows, n_steps = packing.shape
    assert 1 <= n_rows <= max_rows
    taken = np.zeros(packing.shape, int)
    for row, start, length in zip(packing.rows, packing.starts, lengths, strict=True):
        taken[row, start : start + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    # Where a row ends last, none had ended before its last sentence started.
    assert n_steps <= lengths.sum() / n_rows + lengths.max()
