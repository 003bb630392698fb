"""Sentences end to end in rows: none lost, none over another, hardly a step of padding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilm.embedding.packing import MAX_ROWS, pack


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 20))
def test_every_sentence_has_a_place_of_its_own(lengths, max_rows):
    lengths = np.array(lengths)
    packing = pack(lengths, max_rows)
    assert 1 <= packing.n_rows <= max_rows
    taken = np.zeros((packing.n_rows, packing.n_steps), int)
    for row, start, length in zip(packing.rows, packing.starts, lengths, strict=True):
        taken[row, start : start + length] += 1
    assert taken.max() == 1 and taken.sum() == lengths.sum()
    # Where a row ends last, none had ended before its last sentence started.
    assert packing.n_steps <= lengths.sum() / packing.n_rows + lengths.max()


def test_rows_of_english_prose_are_full():
    lengths = np.random.default_rng(0).geometric(1 / 26, size=2000) + 2
    packing = pack(lengths)
    assert packing.n_rows == MAX_ROWS
    assert lengths.sum() > 0.99 * packing.n_rows * packing.n_steps


def test_a_lone_sentence_has_one_row():
    packing = pack(np.array([7]))
    assert (packing.n_rows, packing.n_steps) == (1, 7)
    assert packing.rows.tolist() == packing.starts.tolist() == [0]
