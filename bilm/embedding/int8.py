"""Runs the encoder and the LSTM stacks of a biLM in eight bits, with ONNX Runtime.

`bilm.layers.int8_graphs` defines the computation. ONNX Runtime's products of unsigned with signed
integers add pairs of products in 16 bits on x86 processors without VNNI instructions, which may
saturate (see `reduce_range` in its guide "Quantize ONNX models"). There, inputs have seven bits,
from -63 to 63.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from keras import ops

from bilm.language_model import BiLM
from bilm.layers.int8_graphs import GraphWriter, encoder_model, stack_model
from bilm.layers.int8_weights import LARGEST, Int8Matrix
from bilm.layers.token_encoder import TokenEncoder
from bilm.support.imports import needed
from bilm.support.process import available_cores

FULL, REDUCED = 127, 63  # largest quantized inputs


class Int8Stacks:
    """Runs the stacks of a biLM in eight bits, a window of steps at a time.

    The cells' states, gates, clips and sums are float32.

    Args:
        model: a frozen, built biLM with `precision` "int8". The weights of its stacks move here.
    Raises: MissingExtraError without the packages of the extra `onnx`.
    """

    def __init__(self, model: BiLM):
        self._n_layers, levels = model.options.lstm.n_layers, largest_input()
        n_threads = max(available_cores() // len(model.directions), 1)
        self._sessions = {
            d: _session(stack_model(model.stacks[d], levels), n_threads) for d in model.directions
        }
        self._threads = ThreadPoolExecutor(len(self._sessions), thread_name_prefix="int8")

    def __call__(
        self, table: Any, places: dict[str, Any], fresh: Any, state: Sequence[Any]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Continue from a state.

        Args:
            table: token vectors, float32 (U, P).
            places: for each direction, in its reading order, rows of the table, integer (B, T).
            fresh: boolean (B, T), the steps at which a row starts from zero state.
            state: `BiLM.flatten_state` of the state.
        Returns: for each direction float32 (layers + 1, B, T, P), and the last state.
        """
        table, going_on = ops.convert_to_numpy(table), _going_on(fresh)
        n_parts = 2 * self._n_layers
        state = [ops.convert_to_numpy(part) for part in state]

        def run(k: int, direction: str) -> tuple[np.ndarray, list[np.ndarray]]:
            vectors = table[ops.convert_to_numpy(places[direction]).T]  # T, B, P
            parts = state[k * n_parts : (k + 1) * n_parts]
            names = [f"state_{i}" for i in range(n_parts)]
            feed = dict(zip(names, parts, strict=True), vectors=vectors, going_on=going_on)
            found = self._sessions[direction].run(None, feed)
            layers = np.stack([vectors, *found[n_parts:]])
            return layers.transpose(0, 2, 1, 3), found[:n_parts]

        results = list(self._threads.map(run, range(len(self._sessions)), self._sessions))
        layers = {d: found for d, (found, _) in zip(self._sessions, results, strict=True)}
        return layers, [part for _, parts in results for part in parts]


class Int8Encoder:
    """Runs a token encoder in eight bits.

    Activations, the maximum over the places of filters and sums are float32.

    Args:
        encoder: a frozen, built encoder with `precision` "int8". Its weights move here.
    Raises: MissingExtraError without the packages of the extra `onnx`.
    """

    def __init__(self, encoder: TokenEncoder):
        self._session = _session(encoder_model(encoder, largest_input()), available_cores())

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Encode tokens: integer (U, C), see `TokenEncoder` -> float32 (U, P)."""
        return self._session.run(None, {"ids": ids.astype(np.int32, copy=False)})[0]


def _going_on(fresh: Any) -> np.ndarray:
    """Return the factors of states: boolean (B, T) -> float32 (T, B, 1), 0 for a fresh row."""
    return np.where(ops.convert_to_numpy(fresh).T, np.float32(0), np.float32(1))[:, :, None]


@functools.cache
def largest_input() -> int:
    """Return the largest quantized input with which this processor's products are exact.

    Raises: MissingExtraError without the packages of the extra `onnx`.
    """
    writer, n_rows = GraphWriter(FULL), 64
    largest = Int8Matrix(np.full((n_rows, 16), LARGEST, np.int8), np.ones(16, np.float32))
    found = writer.integer_product("x", "weight", largest)
    inputs = [writer.value("x", 1, n_rows, dtype="uint8")]
    model = writer.model("product", inputs, [writer.value(found, 1, 16)])
    session = _session(model.SerializeToString(), 1)
    product = session.run(None, {"x": np.full((1, n_rows), 2 * FULL + 1, np.uint8)})[0]
    return FULL if np.all(product == FULL * LARGEST * n_rows) else REDUCED


def _session(model: bytes, n_threads: int) -> Any:
    """Return an `onnxruntime.InferenceSession` of a serialized model."""
    with needed("onnx", "precision int8"):
        import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = n_threads, 1
    settings.log_severity_level = 3
    # Between runs, waiting threads must not use the processor, which other libraries need.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
