"""A biLM computed by Keras, and the LSTMs of one sentence of a small one by NumPy.

To start the many small operations of one sentence takes TensorFlow longer than to compute them.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import keras
import numpy as np
from keras import ops

from bilm.inference.backend import Backend, Run, continued, zero_state
from bilm.inference.numpy_lstm import NumpyCell, NumpyStacks, in_numpy_order
from bilm.inference.softmax import Softmax
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
        self._one_row = _copied_stacks(model) if _is_shared(model) else None
        if model.softmax is not None:
            self.softmax = KerasSoftmax(model.softmax)

    @classmethod
    def open(cls, stored: StoredModel, precision: str, has_softmax: bool) -> KerasBackend:
        """Load a model: see `Backend.open`."""
        share_cores()
        model = cls(stored.build_frozen(precision, has_softmax))
        return_freed_memory()
        return model

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        n_tokens = len(ids)
        n_added = n_rows - n_tokens
        if n_added > 0:
            last_token = np.repeat(ids[-1:], n_added, axis=0)
            ids = np.concatenate([ids, last_token])
        vectors = self._encode(ops.convert_to_tensor(ids))
        return ops.convert_to_numpy(vectors)[:n_tokens]

    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows: see `Backend.begin`."""
        if n_rows == 1 and self._one_row is not None:
            return self._one_row.begin(table, n_rows)
        if keras.backend.backend() == "jax":
            return self._begin_padded(table, n_rows)
        run = self._run_one_row if n_rows == 1 else self._run

        def run_tensors(table: Any, places: Any, fresh: Any, state: Any) -> tuple[Any, Any]:
            places = {d: ops.convert_to_tensor(rows) for d, rows in places.items()}
            layers, state = run(table, places, ops.convert_to_tensor(fresh), state)
            if keras.backend.backend() == "torch":  # its tensors may be on a GPU
                layers = {d: ops.convert_to_numpy(x) for d, x in layers.items()}
            return layers, state

        state = [ops.convert_to_tensor(zeros) for zeros in zero_state(self.options, n_rows)]
        return continued(run_tensors, ops.convert_to_tensor(table), state)

    def _begin_padded(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows on JAX, which compiles a program for each shape.

        The numbers of words, rows and steps are padded to powers of two.
        """
        n_padded = power_of_two(n_rows)
        table = _padded(table, power_of_two(len(table)), table.shape[1])

        def run_padded(table: Any, places: Any, fresh: Any, state: Any) -> tuple[Any, Any]:
            n_steps = fresh.shape[1]
            shape = n_padded, power_of_two(n_steps)
            mask = _padded(np.ones_like(fresh), *shape)
            places = {d: _padded(rows, *shape) for d, rows in places.items()}
            layers, state = self._run(table, places, _padded(fresh, *shape), state, mask)
            # JAX sorts the keys of dicts; restore the order of the directions.
            by_direction = {d: np.asarray(layers[d])[:, :n_rows, :n_steps] for d in places}
            return by_direction, state

        state = zero_state(self.options, n_padded)
        return continued(run_padded, ops.convert_to_tensor(table), state)


BACKEND = KerasBackend


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

    state = zero_state(model.options, 0)
    signature = [
        keras.KerasTensor((None, model.options.lstm.projection_dim), "float32"),
        {d: keras.KerasTensor((n_rows, None), "int32") for d in model.directions},
        keras.KerasTensor((n_rows, None), "bool"),
        [keras.KerasTensor((n_rows, part.shape[1]), "float32") for part in state],
    ]
    return compiled(window, signature)


# --- weights for NumPy ---


def _is_shared(model: BiLM) -> bool:
    """Return whether NumPy computes one sentence of a model: in float32, on TensorFlow on the CPU,
    with constant weights and small cells. NumPy reads large cells hardly faster than TensorFlow."""
    if keras.backend.backend() != "tensorflow" or model.precision != "float32":
        return False
    import tensorflow as tf

    cells = [layer.cell for stack in model.stacks.values() for layer in stack.layers]
    is_small = all(cell.frozen and cell.laid_out.layout.joint for cell in cells)
    return is_small and not tf.config.list_physical_devices("GPU")


def _copied_stacks(model: BiLM) -> NumpyStacks:
    """Copy the weights of a frozen model's cells."""
    lstm = model.options.lstm

    def copied(cell: Any) -> NumpyCell:
        gates, biases, projection = cell.laid_out.arrays(lstm.dim)
        kernel = in_numpy_order(gates)  # 2 P, 4 D
        of_input, recurrent = np.split(kernel, [lstm.projection_dim])
        return NumpyCell(of_input, recurrent, in_numpy_order(biases), projection)

    cells: dict[str, list[NumpyCell]] = {}
    for direction, stack in model.stacks.items():
        cells[direction] = [copied(layer.cell) for layer in stack.layers]
    return NumpyStacks(model.options, cells)


# --- the softmax ---


class KerasSoftmax(Softmax):
    """The softmax of a biLM, compiled on TensorFlow."""

    def __init__(self, layer: SampledSoftmax):
        super().__init__(layer.n_tokens)
        hidden = keras.KerasTensor((None, layer.dim), "float32")
        targets = keras.KerasTensor((None,), "int32")
        self._layer = layer
        self._run_losses = compiled(layer.full_loss, [hidden, targets])
        self._run_log_probabilities = compiled(self._normalized, [hidden])
        self._run_described = cache(
            lambda n: compiled(partial(self._columns, n=n), [hidden, targets])
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

    def _columns(self, hidden, targets, n):
        """Return the columns of `described_dtype`."""
        scores = self._scores(hidden)  # N, V
        scores = scores - ops.max(scores, axis=1, keepdims=True)
        shares = ops.exp(scores)
        total = ops.sum(shares, axis=1)
        normalizer = ops.log(total)
        entropies = normalizer - ops.sum(shares * scores, axis=1) / total

        of_targets = ops.take_along_axis(scores, targets[:, None], axis=1)
        ranks = 1 + ops.sum(ops.cast(scores > of_targets, "int32"), axis=1)
        logs, words = ops.top_k(scores, n)
        return [
            of_targets[:, 0] - normalizer, entropies, ranks, words, logs - normalizer[:, None]
        ]  # fmt: skip

    def _scores(self, hidden):
        """Return the scores of all words: float (N, P) -> (N, V)."""
        return ops.matmul(hidden, ops.transpose(self._layer.kernel)) + self._layer.bias
