"""The LSTM states of rows, carried from one call of a biLM to the next."""

import keras
from keras import ops

from bilm.language_model import BiLM
from bilm.layers.types import State, Tensor


class RowStates:
    """The final state of each row of the previous calls, without gradients. A call of n rows reads
    and replaces the states of the first n rows; new rows start from zero state. Compiled functions
    may contain the calls on TensorFlow only."""

    def __init__(self, bilm: BiLM):
        self._rows = bilm.zero_state(0)  # each float (n, width)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            for k, rows in enumerate(self._rows):
                self._rows[k] = tf.Variable(rows, shape=(None, rows.shape[1]), trainable=False)

    def start(self, n_rows: int | Tensor) -> State:
        """Return the initial state of a call of `n_rows` rows, an integer or an integer tensor."""
        starts = []
        for rows in self._rows:
            zeros = ops.zeros((n_rows, rows.shape[1]), "float32")
            starts.append(ops.concatenate([rows, zeros])[:n_rows])  # n_rows, width
        return starts

    def finish(self, state: State) -> None:
        """Store the final state of a call, a result of `BiLM`."""
        for k, last in enumerate(state):
            others = self._rows[k][ops.shape(last)[0] :]
            self._replace(k, ops.concatenate([ops.stop_gradient(last), others]))

    def reset(self) -> None:
        """Set all rows to zero state."""
        for k, rows in enumerate(self._rows):
            self._replace(k, rows[:0])

    def _replace(self, k: int, rows: Tensor) -> None:
        if keras.backend.backend() == "tensorflow":
            self._rows[k].assign(rows)
        else:
            self._rows[k] = rows
