"""The LSTM states that a stateful `Elmo` carries from call to call, one variable per part."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bilm.language_model import BiLM


class RowStates(tf.Module):
    """The states of all rows; the variables grow to the largest batch."""

    def __init__(self, bilm: BiLM):
        super().__init__()
        self._bilm = bilm
        with tf.init_scope():
            zeros = bilm.flatten_state(bilm.zero_state(0))
            self._parts = [tf.Variable(z, shape=(None, z.shape[1]), trainable=False) for z in zeros]

    def start(self, n_rows: Any) -> Any:
        """Return the state of the first `n_rows` rows; new rows start from zero state."""
        starts = []
        for variable in self._parts:
            missing = tf.maximum(n_rows - tf.shape(variable)[0], 0)
            variable.assign(tf.pad(variable, [[0, missing], [0, 0]]))
            starts.append(variable[:n_rows])
        return self._bilm.pack_state(starts)

    def finish(self, state: Any) -> None:
        """Store the final state of the first rows."""
        for variable, last in zip(self._parts, self._bilm.flatten_state(state), strict=True):
            variable.assign(tf.concat([last, variable[tf.shape(last)[0] :]], axis=0))

    def reset(self) -> None:
        """Set all rows to zero state."""
        for variable in self._parts:
            variable.assign(variable[:0])
