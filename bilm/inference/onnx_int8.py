"""A biLM whose encoder and LSTM stacks ONNX Runtime computes in eight bits.

`bilm.layers.int8_graphs` defines the computation. ONNX Runtime's products of unsigned with signed
integers add pairs of products in 16 bits on x86 processors without VNNI instructions, which may
saturate (see `reduce_range` in its guide "Quantize ONNX models"). There, inputs have seven bits,
from -63 to 63.
"""

import functools
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bilm.inference.backend import Backend, ByDirection, Stacks, Window
from bilm.inference.keras import KerasEncoder
from bilm.language_model import BiLM
from bilm.layers.int8_graphs import Int8Graph, encoder_model, stack_model
from bilm.layers.types import State
from bilm.layers.weighted import LARGEST, Int8Matrix
from bilm.storage.stored_model import StoredModel
from bilm.support.imports import needed
from bilm.support.process import available_cores, return_freed_memory

FULL, REDUCED = 127, 63  # largest quantized inputs


def load(stored: StoredModel, precision: str, has_softmax: bool) -> Backend:
    """Load a model, whose weights move to ONNX Runtime: see `open_backend`. Activations, maxima,
    cell states, gates, clips and sums are float32; Keras reads word tables."""
    levels = largest_input()  # raises an error without ONNX Runtime, before weights are read
    model = stored.weights().build(precision=precision, frozen=True)
    if model.options.reads_words:
        backend = Backend(model.options, model.n_tokens, KerasEncoder(model), OnnxStacks(model))
    else:
        encoder = _session(encoder_model(model.encoder, levels), available_cores())

        def encode(ids):
            return encoder.run(None, {"ids": ids.astype(np.int32, copy=False)})[0]

        backend = Backend(model.options, None, encode, OnnxStacks(model))
    return_freed_memory()
    return backend


class OnnxStacks(Stacks):
    """The stacks, which are removed from the model and run in one thread per direction."""

    def __init__(self, model: BiLM):
        super().__init__(model.options)
        n_threads = max(available_cores() // len(model.directions), 1)
        self._sessions: dict[str, Any] = {}
        for direction in model.directions:
            content = stack_model(model.stacks.pop(direction), largest_input())
            gc.collect()  # layers are in cycles, and their weights are in the content
            self._sessions[direction] = _session(content, n_threads)
        self._threads = ThreadPoolExecutor(len(self._sessions), thread_name_prefix="int8")

    def run_window(
        self, table: np.ndarray, window: Window, state: State
    ) -> tuple[ByDirection, State]:
        places, fresh = window
        going_on = np.where(fresh.T, np.float32(0), np.float32(1))[:, :, None]
        n_parts = len(state) // len(self._sessions)
        states = [state[k : k + n_parts] for k in range(0, len(state), n_parts)]

        def run(direction, parts):
            vectors = table[places[direction].T]  # T, B, P
            feed = {f"state_{i}": part for i, part in enumerate(parts)}
            feed |= {"vectors": vectors, "going_on": going_on}
            outputs = self._sessions[direction].run(None, feed)
            layers = np.stack([vectors, *outputs[n_parts:]])  # layers + 1, T, B, P
            return layers.transpose(0, 2, 1, 3), outputs[:n_parts]

        results = self._threads.map(run, self._sessions, states)
        layers: ByDirection = {}
        last: list[np.ndarray] = []
        for direction, (outputs, last_state) in zip(self._sessions, results, strict=True):
            layers[direction] = outputs
            last += last_state
        return layers, last


@functools.cache
def largest_input() -> int:
    """Return the largest quantized input with which this processor's products are exact. Raises:
    MissingExtraError without the packages of the extra `onnx`."""
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
    with needed("onnx", "precision int8"):
        import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = n_threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    # Between runs, waiting threads must not use the processor, which other libraries need.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
