"""States of rows: kept per row, whatever the numbers of rows of the calls."""

import numpy as np
from elmo_models import make
from keras import ops

from bilm.elmo.row_states import RowStates


def values(state):
    return [ops.convert_to_numpy(tensor) for tensor in state]


def test_row_states_keep_the_rows_that_a_call_does_not_have():
    bilm = make().bilm
    states = RowStates(bilm)
    assert all(not rows.any() and len(rows) == 3 for rows in values(states.start(3)))
    final = [ops.ones((2, zeros.shape[1])) for zeros in bilm.zero_state(0)]
    states.finish(final)
    states.finish([2 * tensor[:1] for tensor in final])
    for rows in values(states.start(3)):
        np.testing.assert_array_equal(rows[:, 0], [2, 1, 0])
    states.reset()
    assert all(not rows.any() and len(rows) == 2 for rows in values(states.start(2)))
