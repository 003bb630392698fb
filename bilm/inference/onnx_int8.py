"""A biLM whose encoder and LSTM stacks ONNX Runtime computes in eight bits.

`bilm.layers.int8_graphs` defines the computation. ONNX Runtime's products of unsigned with signed
integers add pairs of products in 16 bits on x86 processors without VNNI instructions, which may
saturate (see `reduce_range` in its guide "Quantize ONNX models"). There, inputs have seven bits,
from -63 to 63.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from keras import ops

from bilm.inference.backend import Backend
from bilm.language_model import BiLM
from bilm.layers.int8_graphs import Int8Graph, encoder_model, stack_model
from bilm.layers.weighted import LARGEST, Int8Matrix
from bilm.storage.stored_model import StoredModel
from bilm.support.imports import needed
from bilm.support.process import available_cores, return_freed_memory

FULL, REDUCED = 127, 63  # largest quantized inputs


class OnnxInt8Backend(Backend):
    """A biLM in eight bits. Activations, maxima, the cells' states, gates, clips and sums are
    float32; a table of words is read by Keras.

    Args:
        model: a frozen, built biLM with `precision` "int8", whose weights move here.
    """

    def __init__(self, model: BiLM):
        super().__init__(model.options, model.n_tokens if model.options.reads_words else None)
        levels = largest_input()
        n_threads = max(available_cores() // len(model.directions), 1)
        self._stacks: dict[str, Any] = {}
        for direction, stack in model.stacks.items():
            self._stacks[direction] = _session(stack_model(stack, levels), n_threads)
        self._threads = ThreadPoolExecutor(len(self._stacks), thread_name_prefix="int8")
        self._words = model.encoder if self.options.reads_words else None
        if self._words is None:
            self._encoder = _session(encoder_model(model.encoder, levels), available_cores())

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        if self._words is not None:
            return ops.convert_to_numpy(self._words(ids))
        return self._encoder.run(None, {"ids": ids.astype(np.int32, copy=False)})[0]

    def run_window(
        self, table: np.ndarray, places: dict[str, np.ndarray], fresh: np.ndarray, state: list[Any]
    ) -> tuple[dict[str, Any], list[Any]]:
        """Run a window: see `Backend.run_window`."""
        going_on = np.where(fresh.T, np.float32(0), np.float32(1))[:, :, None]
        n_parts = 2 * self.options.lstm.n_layers
        names = [f"state_{i}" for i in range(n_parts)]

        def run(k, direction):
            vectors = table[places[direction].T]  # T, B, P
            own_state = state[k * n_parts : (k + 1) * n_parts]
            feed = dict(zip(names, own_state, strict=True), vectors=vectors, going_on=going_on)
            outputs = self._stacks[direction].run(None, feed)
            layers = np.stack([vectors, *outputs[n_parts:]])  # layers + 1, T, B, P
            return layers.transpose(0, 2, 1, 3), outputs[:n_parts]

        results = self._threads.map(run, range(len(self._stacks)), self._stacks)
        layers: dict[str, np.ndarray] = {}
        last: list[np.ndarray] = []
        for direction, (outputs, last_state) in zip(self._stacks, results, strict=True):
            layers[direction] = outputs
            last += last_state
        return layers, last


def load(stored: StoredModel, precision: str, has_softmax: bool) -> OnnxInt8Backend:
    """Load a model: see `open_backend`."""
    largest_input()  # raises an error without ONNX Runtime, before weights are read
    backend = OnnxInt8Backend(stored.build_frozen(precision))
    return_freed_memory()
    return backend


@functools.cache
def largest_input() -> int:
    """Return the largest quantized input with which this processor's products are exact.

    Raises: MissingExtraError without the packages of the extra `onnx`.
    """
    n_rows = 64
    graph = Int8Graph(FULL)
    x = graph.input("x", 1, n_rows, dtype="uint8")
    weight = Int8Matrix(np.full((n_rows, 16), LARGEST, np.int8), np.ones(16, np.float32))
    graph.output(graph.integer_product(x, "weight", weight))

    session = _session(graph.model("product"), 1)
    largest: np.ndarray = np.full((1, n_rows), 2 * FULL + 1, np.uint8)
    (product,) = session.run(None, {"x": largest})
    return FULL if np.all(product == FULL * LARGEST * n_rows) else REDUCED


def _session(model: bytes, n_threads: int) -> Any:
    """Return an `onnxruntime.InferenceSession` of a serialized model."""
    with needed("onnx", "precision int8"):
        import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = n_threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    # Between runs, waiting threads must not use the processor, which other libraries need.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
