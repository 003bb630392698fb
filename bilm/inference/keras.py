"""A biLM computed by Keras, and the LSTMs of one sentence of a small one by NumPy.

To start the many small operations of one sentence takes TensorFlow longer than to compute them.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import keras
import numpy as np
from keras import ops

from bilm.inference.backend import Backend
from bilm.inference.numpy_lstm import NumpyCell, NumpyStacks, numpy_cell
from bilm.inference.softmax import Softmax, described_columns
from bilm.language_model import BiLM
from bilm.layers.functional import compiled
from bilm.layers.sampled_softmax import SampledSoftmax
from bilm.storage.stored_model import StoredModel
from bilm.support.process import return_freed_memory, share_cores

ROW_STEP = 64  # numbers of hidden vectors that the softmax reads are its multiples


class KerasBackend(Backend):
    """A biLM that Keras computes, compiled on TensorFlow.

    Args:
        model: a built biLM without padding; with its softmax for scoring.
    """

    def __init__(self, model: BiLM):
        super().__init__(model.options, model.n_tokens if model.options.reads_words else None)
        self.runs_ahead = keras.backend.backend() == "tensorflow"
        self._run = _compiled_windows(model, None)
        self._run_one_row = _compiled_windows(model, 1)
        self._encode: Any = model.encoder
        if not self.options.reads_words:
            self._encode = compiled(model.encoder, [keras.KerasTensor((None, None), "int32")])
        self._one_row = _numpy_stacks(model)
        if model.softmax is not None:
            self.softmax = KerasSoftmax(model.softmax)

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        n_tokens = len(ids)
        n_added = n_rows - n_tokens
        if n_added > 0:
            last_token = np.repeat(ids[-1:], n_added, axis=0)
            ids = np.concatenate([ids, last_token])
        vectors = self._encode(ops.convert_to_tensor(ids))
        return ops.convert_to_numpy(vectors)[:n_tokens]

    def start(self, table: np.ndarray, n_rows: int) -> tuple[Any, list[Any]]:
        """Return tensors: see `Backend.start`. On JAX, numbers of words and rows are padded."""
        if keras.backend.backend() == "jax":
            table = _padded(table, power_of_two(len(table)), table.shape[1])
            n_rows = power_of_two(n_rows)
        vectors, state = super().start(table, n_rows)
        if n_rows == 1 and self._one_row is not None:
            return vectors, state
        return ops.convert_to_tensor(vectors), [ops.convert_to_tensor(zeros) for zeros in state]

    def run_window(
        self, table: Any, places: dict[str, np.ndarray], fresh: np.ndarray, state: list[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Run a window: see `Backend.run_window`."""
        if len(fresh) == 1 and self._one_row is not None:
            return self._one_row.run_window(table, places, fresh, state)
        if keras.backend.backend() == "jax":
            return self._run_padded_window(table, places, fresh, state)

        run = self._run_one_row if len(fresh) == 1 else self._run
        tensors = {d: ops.convert_to_tensor(rows) for d, rows in places.items()}
        layers, state = run(table, tensors, ops.convert_to_tensor(fresh), state)
        if keras.backend.backend() == "torch":  # its tensors may be on a GPU
            layers = {d: ops.convert_to_numpy(x) for d, x in layers.items()}
        return layers, state

    def _run_padded_window(self, table, places, fresh, state):
        """Run a window on JAX, which compiles a program for each shape: the numbers of words, rows
        and steps are padded to powers of two."""
        n_rows, n_steps = fresh.shape
        shape = power_of_two(n_rows), power_of_two(n_steps)
        mask = _padded(np.ones_like(fresh), *shape)
        padded = {d: _padded(rows, *shape) for d, rows in places.items()}
        layers, state = self._run(table, padded, _padded(fresh, *shape), state, mask)
        # JAX sorts the keys of dicts; restore the order of the directions.
        return {d: np.asarray(layers[d])[:, :n_rows, :n_steps] for d in places}, state


def load(stored: StoredModel, precision: str, has_softmax: bool) -> KerasBackend:
    """Load a model: see `open_backend`."""
    share_cores()
    backend = KerasBackend(stored.build_frozen(precision, has_softmax))
    return_freed_memory()
    return backend


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def _padded(array: np.ndarray, n_rows: int, n_columns: int) -> np.ndarray:
    """Add rows and columns of zeros to an array up to a size."""
    return np.pad(array, [(0, n_rows - len(array)), (0, n_columns - array.shape[1])])


def _compiled_windows(model: BiLM, n_rows: int | None) -> Any:
    """Return the compiled function that runs a window of `n_rows` rows, or of any number."""

    def window(table, places, fresh, state, mask=None):
        vectors = {d: ops.take(table, places[d], axis=0) for d in model.directions}
        outputs, state = model.windows(vectors, model.pack_state(state), mask, fresh=fresh)
        layers = {d: ops.stack([vectors[d], *outputs[d]]) for d in model.directions}
        return layers, model.flatten_state(state)

    state = model.flatten_state(model.zero_state(0))
    signature = [
        keras.KerasTensor((None, model.options.lstm.projection_dim), "float32"),
        {d: keras.KerasTensor((n_rows, None), "int32") for d in model.directions},
        keras.KerasTensor((n_rows, None), "bool"),
        [keras.KerasTensor((n_rows, part.shape[1]), "float32") for part in state],
    ]
    return compiled(window, signature)


def _numpy_stacks(model: BiLM) -> NumpyStacks | None:
    """Return copies of the stacks, if NumPy computes one sentence sooner: in float32, on TensorFlow
    on the CPU, with constant weights and small cells. NumPy reads large cells hardly faster."""
    if keras.backend.backend() != "tensorflow" or model.precision != "float32":
        return None
    import tensorflow as tf

    first = model.stacks[model.directions[0]].layers[0].cell
    is_small = first.frozen and not first.laid_out.of_input
    if not is_small or tf.config.list_physical_devices("GPU"):
        return None

    cells: dict[str, list[NumpyCell]] = {}
    for direction, stack in model.stacks.items():
        weights = [layer.cell.laid_out.arrays(first.dim) for layer in stack.layers]
        cells[direction] = [numpy_cell(*arrays) for arrays in weights]
    return NumpyStacks(model.options, cells)


# --- the softmax ---


class KerasSoftmax(Softmax):
    """The softmax of a biLM, compiled on TensorFlow."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(layer.n_tokens)
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        targets = keras.KerasTensor((None,), "int32")
        self._layer = layer
        self._run_losses = compiled(layer, [hidden, targets])
        self._run_log_probabilities = compiled(self._normalized, [hidden])
        self._run_described = cache(
            lambda n: compiled(partial(self._columns, n), [hidden, targets])
        )

    def losses(self, hidden: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the negative log-probabilities of words: see `Softmax.losses`."""
        n_vectors = len(hidden)
        # Libraries compile a program for each number of rows.
        n_rows = power_of_two(n_vectors)
        if n_vectors > ROW_STEP:
            n_rows = -(-n_vectors // ROW_STEP) * ROW_STEP
        n_added = n_rows - n_vectors
        vectors = ops.convert_to_tensor(np.pad(hidden, [(0, n_added), (0, 0)]))
        ids = ops.convert_to_tensor(np.pad(targets, (0, n_added)))
        losses = self._run_losses(vectors, ids)
        return ops.convert_to_numpy(losses)[:n_vectors]

    def _log_probabilities(self, hidden: np.ndarray) -> np.ndarray:
        logs = self._run_log_probabilities(ops.convert_to_tensor(hidden))
        return ops.convert_to_numpy(logs)

    def _described(self, hidden: np.ndarray, targets: np.ndarray, n: int) -> list[np.ndarray]:
        run = self._run_described(n)
        columns = run(ops.convert_to_tensor(hidden), ops.convert_to_tensor(targets))
        return [ops.convert_to_numpy(column) for column in columns]

    def _normalized(self, hidden):
        """Return the log-probabilities of all words: float (N, P) -> (N, V)."""
        scores = self._scores(hidden)
        return scores - ops.logsumexp(scores, axis=1, keepdims=True)

    def _columns(self, n, hidden, targets):
        """Return the columns of `described_dtype`."""
        return described_columns(ops, self._scores(hidden), targets, partial(ops.top_k, k=n))

    def _scores(self, hidden):
        """Return the scores of all words: float (N, P) -> (N, V)."""
        return ops.matmul(hidden, ops.transpose(self._layer.kernel)) + self._layer.bias
