"""The LSTM stacks of a biLM, computed by Keras on each of its backends."""

import keras
import numpy as np
from keras import ops, tree

from bilm.inference.backend import ByDirection, Stacks, State, Window
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.types import Tensor

JAX_ROWS = 1, 16, 64, 192
JAX_STEPS = 16


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
        return self._run(table, places, fresh, state)

    def _window(self, table, places, fresh, state):
        vectors = {d: ops.take(table, places[d], axis=0) for d in self._model.directions}
        return self._layers(vectors, fresh, state)

    def _layers(self, vectors, fresh, state, mask=None):
        model = self._model
        outputs, packed = model.windows(vectors, model.pack_state(state), mask, fresh=fresh)
        layers = {}
        for direction, of_tokens in vectors.items():
            layers[direction] = ops.stack([of_tokens, *outputs[direction]])
        return layers, model.flatten_state(packed)


class TorchStacks(KerasStacks):
    """The stacks on PyTorch, whose tensors may be on a GPU."""

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        layers, state = super().run_window(table, window, state)
        return {d: ops.convert_to_numpy(x) for d, x in layers.items()}, state


class JaxStacks(KerasStacks):
    """The stacks on JAX, which compiles a program for each shape: numbers of rows are padded to one
    of `JAX_ROWS`, and of steps to powers of two from `JAX_STEPS`."""

    def __init__(self, model: BiLM):
        Stacks.__init__(self, model.options)
        self._model = model
        self._run = compiled(self._layers, [])

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Tensor, State]:
        n_rows = next((n for n in JAX_ROWS if n_rows <= n), n_rows)
        return Stacks.start(self, table, n_rows)

    def run_window(self, table: Tensor, window: Window, state: State) -> tuple[ByDirection, State]:
        places, fresh = window
        n_rows, n_steps = fresh.shape
        padding = [
            (0, len(state[0]) - n_rows),
            (0, power_of_two(max(n_steps, JAX_STEPS)) - n_steps),
        ]
        mask = np.pad(np.ones_like(fresh), padding)
        vectors = {d: table[np.pad(rows, padding)] for d, rows in places.items()}
        layers, state = self._run(vectors, np.pad(fresh, padding), state, mask)
        cropped = {}
        for direction in places:  # JAX has sorted the keys of `layers`
            cropped[direction] = np.asarray(layers[direction])[:, :n_rows, :n_steps]
        return cropped, state


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()
