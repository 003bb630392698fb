"""The LSTM stacks of a biLM, computed by Keras on each of its backends."""

import keras
import numpy as np
from keras import ops, tree

from bilm.inference.backend import ByDirection, Stacks, Window
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.types import State, Tensor


class KerasStacks(Stacks):
    """The stacks of a biLM, compiled for windows of `n_rows` rows, or of any number."""

    def __init__(self, model: BiLM, n_rows: int | None = None):
        super().__init__(model.options)
        self._model = model
        n_features = model.options.lstm.projection_dim
        table = keras.KerasTensor((None, n_features), "float32")
        places = {}
        for direction in model.directions:
            places[direction] = keras.KerasTensor((n_rows, None), "int32")
        fresh = keras.KerasTensor((n_rows, None), "bool")
        state = []
        for width in self.state_widths:
            state.append(keras.KerasTensor((n_rows, width), "float32"))
        self._run = compiled(self._window, [table, places, fresh, state])

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        return tree.map_structure(ops.convert_to_tensor, super().start(table, n_rows))

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        places, fresh = tree.map_structure(ops.convert_to_tensor, window)
        layers, state = self._run(table, places, fresh, state)
        return {d: ops.convert_to_numpy(x) for d, x in layers.items()}, state

    def _window(self, table, places, fresh, state, mask=None):
        model = self._model
        vectors = {d: ops.take(table, places[d], axis=0) for d in model.directions}
        outputs, state = model.windows(vectors, state, mask, fresh=fresh)
        layers = {}
        for direction, of_tokens in vectors.items():
            layers[direction] = ops.stack([of_tokens, *outputs[direction]])
        return layers, state


class JaxStacks(KerasStacks):
    """The stacks on JAX, which compiles a program for each shape: numbers of words, rows and steps
    are padded to powers of two."""

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        n_words, width = table.shape
        return super().start(_padded(table, power_of_two(n_words), width), power_of_two(n_rows))

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        places, fresh = window
        n_rows, n_steps = fresh.shape
        shape = power_of_two(n_rows), power_of_two(n_steps)
        mask = _padded(np.ones_like(fresh), *shape)
        padded = {d: _padded(rows, *shape) for d, rows in places.items()}
        layers, state = self._run(table, padded, _padded(fresh, *shape), state, mask)
        cropped = {}
        for direction in places:  # JAX has sorted the keys of `layers`
            cropped[direction] = np.asarray(layers[direction])[:, :n_rows, :n_steps]
        return cropped, state


def _padded(array: np.ndarray, n_rows: int, n_columns: int) -> np.ndarray:
    more_rows = n_rows - array.shape[0]
    more_columns = n_columns - array.shape[1]
    return np.pad(array, [(0, more_rows), (0, more_columns)])


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()
