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

from bilm.inference.backend import Backend, Run, continued, zero_state
from bilm.language_model import BiLM
from bilm.layers.int8_graphs import Int8Graph, encoder_model, stack_model
from bilm.layers.int8_weights import LARGEST, Int8Matrix
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
        levels, n_threads = largest_input(), max(available_cores() // len(model.directions), 1)
        self._stacks = {
            d: _session(stack_model(model.stacks[d], levels), n_threads) for d in model.directions
        }
        self._threads = ThreadPoolExecutor(len(self._stacks), thread_name_prefix="int8")
        self._words = model.encoder if self.options.reads_words else None
        if self._words is None:
            self._encoder = _session(encoder_model(model.encoder, levels), available_cores())

    @classmethod
    def unsupported(cls, precision: str, has_softmax: bool) -> str | None:
        """Return what is not computed: see `Backend.unsupported`."""
        return "does not score in int8; use float32" if has_softmax else None

    @classmethod
    def open(cls, stored: StoredModel, precision: str, has_softmax: bool) -> OnnxInt8Backend:
        """Load a model: see `Backend.open`."""
        largest_input()  # raises an error without ONNX Runtime, before weights are read
        model = cls(stored.build_frozen(precision))
        return_freed_memory()
        return model

    def encode(self, ids: np.ndarray, n_rows: int = 0) -> np.ndarray:
        """Return the vectors of tokens: see `Backend.encode`."""
        if self._words is not None:
            return ops.convert_to_numpy(self._words(ids))
        return self._encoder.run(None, {"ids": ids.astype(np.int32, copy=False)})[0]

    def begin(self, table: np.ndarray, n_rows: int) -> Run:
        """Return the function that runs windows: see `Backend.begin`."""
        return continued(self._run_window, table, zero_state(self.options, n_rows))

    def _run_window(
        self,
        table: np.ndarray,
        places: dict[str, np.ndarray],
        fresh: np.ndarray,
        state: list[np.ndarray],
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Run a window from a state; return the layers by direction and the last state."""
        going_on = np.where(fresh.T, np.float32(0), np.float32(1))[:, :, None]
        n_parts = 2 * self.options.lstm.n_layers
        names = [f"state_{i}" for i in range(n_parts)]

        def run(k: int, direction: str) -> tuple[np.ndarray, list[np.ndarray]]:
            vectors = table[places[direction].T]  # T, B, P
            own_state = state[k * n_parts : (k + 1) * n_parts]
            feed = dict(zip(names, own_state, strict=True), vectors=vectors, going_on=going_on)
            outputs = self._stacks[direction].run(None, feed)
            layers = np.stack([vectors, *outputs[n_parts:]])
            return layers.transpose(0, 2, 1, 3), outputs[:n_parts]

        layers: dict[str, np.ndarray] = {}
        last: list[np.ndarray] = []
        results = self._threads.map(run, range(len(self._stacks)), self._stacks)
        for direction, (outputs, last_state) in zip(self._stacks, results, strict=True):
            layers[direction] = outputs
            last += last_state
        return layers, last


BACKEND = OnnxInt8Backend


@functools.cache
def largest_input() -> int:
    """Return the largest quantized input with which this processor's products are exact.

    Raises: MissingExtraError without the packages of the extra `onnx`.
    """
    graph, n_rows = Int8Graph(FULL), 64
    largest = Int8Matrix(np.full((n_rows, 16), LARGEST, np.int8), np.ones(16, np.float32))
    x = graph.input("x", 1, n_rows, dtype="uint8")
    graph.output(graph.integer_product(x, "weight", largest), 1, 16)
    session = _session(graph.model("product"), 1)
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
