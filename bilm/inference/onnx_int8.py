"""A biLM whose encoder and LSTM stacks ONNX Runtime computes in eight bits.

Weights have one scale per column. Inputs of products have one scale per row, 1 / `levels` of the
row's largest absolute value, so that a row does not depend on other rows. The character CNN
computes in float32: in eight bits, its errors would exceed those of all other layers together.

ONNX Runtime is fast only for products of an unsigned with a signed matrix, so `levels + 1` is added
to the inputs. Such products add pairs of products in 16 bits on x86 processors without VNNI
instructions, which may saturate (see `reduce_range` in its guide "Quantize ONNX models"). There,
inputs have seven bits, from -63 to 63.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bilm.activations import ACTIVATIONS
from bilm.inference.backend import Backend, ByDirection, Stacks, StoredCell, Window, stored_cell
from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.onnx_graph import END, FULL, GraphWriter, Int8Matrix, Rounded, Value
from bilm.layers.types import State
from bilm.options.model_options import LstmOptions, ModelOptions
from bilm.storage.stored_model import StoredModel
from bilm.support.imports import needed
from bilm.support.process import available_cores, note_computing, return_freed_memory
from bilm.tensors import GATES, N_GATES, Filters, Kind, row_of

REDUCED = 63  # largest quantized input where products of larger ones are not exact
LARGEST = 127  # largest absolute value of a quantized weight
LOWEST = float(np.finfo(np.float32).min)


def quantized(weight: np.ndarray) -> Int8Matrix:
    """Round a matrix, float32 (K, N), to multiples of 1/127 of each column's largest value."""
    scales = np.abs(weight).max(axis=0) / LARGEST
    scales[scales < np.finfo(np.float32).tiny] = 1  # columns of zeros
    return Int8Matrix(np.rint(weight / scales).astype(np.int8), scales)


def load(stored: StoredModel, precision: str, has_softmax: bool) -> Backend:
    """Load a model, whose weights move to ONNX Runtime: see `open_backend`. Activations, maxima,
    cell states, gates, clips and sums are float32."""
    note_computing()
    levels = largest_input()  # raises an error without ONNX Runtime, before weights are read
    options = stored.options
    values: dict[str, Any] = {}
    for name, value in stored.weights().values():
        values[name] = quantized(value) if row_of(name).kind is Kind.MATRIX else value
    stacks = OnnxStacks(options, values.pop)
    table = values.get("embedding")
    if table is not None:
        return Backend(options, len(table), table.__getitem__, stacks)
    encoder = _session(encoder_model(options, values, levels), available_cores())
    return_freed_memory()

    def encode(ids):
        return encoder.run(None, {"ids": ids.astype(np.int32, copy=False)})[0]

    return Backend(options, None, encode, stacks)


class OnnxStacks(Stacks):
    """The stacks, which run in one thread per direction. `read` returns the stored tensor of a
    name, a matrix as `Int8Matrix`."""

    def __init__(self, options: ModelOptions, read: Callable[[str], Any]):
        super().__init__(options)
        lstm = options.lstm
        n_threads = max(available_cores() // len(options.directions), 1)
        self._sessions: dict[str, Any] = {}
        for k, direction in enumerate(options.directions):
            cells = [stored_cell(lstm, read, k, i) for i in range(lstm.n_layers)]
            content = stack_model(lstm, cells, largest_input())
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
    graph = GraphWriter(FULL)
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


# --- LSTMs ---


def stack_model(lstm: LstmOptions, cells: Sequence[StoredCell], levels: int) -> bytes:
    """Return a serialized ONNX model that runs the cells of a direction, whose matrices are
    `Int8Matrix`, over a window.

    Inputs: `state_0`, ..., by layer, cell before hidden, float32 (B, D) and (B, P); `vectors`,
    float32 (T, B, P); `going_on`, float32 (T, B, 1), factors of the state before each step: 0 where
    a row starts from zero state.
    Outputs: the last state; for each layer float32 (T, B, P).
    """
    graph = GraphWriter(levels)
    widths = [lstm.dim, lstm.projection_dim] * len(cells)
    state = [graph.input(f"state_{k}", "B", width) for k, width in enumerate(widths)]
    vectors = graph.input("vectors", "T", "B", lstm.projection_dim)
    going_on = graph.input("going_on", "T", "B", 1)
    graph.set_rows(state[0])

    # One step of all layers
    step = graph.body("step_")
    old = [step.input(f"old_{k}", "B", width) for k, width in enumerate(widths)]
    x = step.input("x", "B", lstm.projection_dim)
    factor = step.input("factor", "B", 1)
    new: list[Value] = []
    outputs: list[Value] = []
    for k, cell in enumerate(cells):
        before = LSTMState(old[2 * k] * factor, old[2 * k + 1] * factor)
        after = _add_step(step, f"cell_{k}", lstm, cell, x, before)
        new += after
        x = after.hidden + x if k and lstm.use_skip_connections else after.hidden
        outputs.append(x)
    step.output(*new)
    for x in outputs:
        if x in new:  # the results of a graph must have different names
            x = step.add("Identity", x)
        step.output(x)

    graph.output(*graph.scan(step, state, [vectors, going_on]))
    return graph.model("stack")


def _add_step(
    graph: GraphWriter, name: str, lstm: LstmOptions, cell: StoredCell, x: Value, old: LSTMState
) -> LSTMState:
    """Add a step of a cell, and return the new state. There is one product per gate, because
    splitting the result of one for all gates would copy it, and four results fit the cache."""
    read = graph.rounded(graph.concat([x, old.hidden], axis=1))  # B, 2 P
    values = np.split(cell.kernel.values, N_GATES, axis=1)
    scales = np.split(cell.kernel.scales, N_GATES)
    biases = np.split(cell.bias + forget_bias(lstm.dim), N_GATES)
    gates = []
    for k, gate in enumerate(GATES):
        product = graph.product(read, f"{name}_kernel_{gate}", Int8Matrix(values[k], scales[k]))
        gates.append(product + graph.constant(f"{name}_bias_{gate}", biases[k]))  # B, D

    def matmul(x, weight):
        return graph.product(graph.rounded(x), f"{name}_projection", weight)

    library = library_of(graph, matmul)
    clips = lstm.cell_clip, lstm.proj_clip
    return next_state(library, gates, old, cell.projection, clips).state


def library_of(graph: GraphWriter, matmul: Callable[[Value, Any], Value]) -> Library:
    """Return the functions of `lstm_equation` that add nodes to a graph, with this product."""
    return Library(
        matmul=matmul,
        sigmoid=partial(graph.add, "Sigmoid"),
        tanh=partial(graph.add, "Tanh"),
        clip=partial(graph.add, "Clip"),
        where=partial(graph.add, "Where"),
        split=list,  # the gates are a list of values
    )


# --- token vectors ---


def encoder_model(options: ModelOptions, stored: Mapping[str, Any], levels: int) -> bytes:
    """Return a serialized ONNX model of `bilm.layers.token_encoder.TokenEncoder`: `ids`, int32
    (U, C), or (U, 1 + C) with a table of words -> float32 (U, P). `stored`: the tensors by name."""
    assert options.encoder is not None
    graph = GraphWriter(levels)
    ids = graph.input("ids", "U", "C", dtype="int32")
    graph.set_rows(ids)

    def affine(x: Rounded, layer: str, name: str) -> Value:
        weight = f"{layer}/W_{name}"
        bias = f"{layer}/b_{name}"
        product = graph.product(x, weight, stored[weight])
        return product + graph.constant(bias, stored[bias])

    features = []
    if "word_embed" in stored:
        words = graph.add("Gather", ids, graph.constant("first", np.int64(0)), axis=1)  # U
        table = graph.constant("word_embed", stored["word_embed"])
        features.append(graph.add("Gather", table, words))  # U, width
        ids = graph.slice(ids, 1, END, axis=1)  # U, C
    if "char_embed" in stored:
        maximum = _add_cnn(graph, options.filters, stored, ids)
        x = graph.add(ACTIVATIONS[options.encoder.activation].onnx, maximum)
        for i in range(options.encoder.n_highway):
            read = graph.rounded(x)
            gate = graph.add("Sigmoid", affine(read, f"CNN_high_{i}", "carry"))
            transform = graph.add("Relu", affine(read, f"CNN_high_{i}", "transform"))
            x = x + gate * (transform - x)
        features.append(x)
    x = graph.concat(features, axis=1)  # U, features

    if "CNN_proj/W_proj" in stored:
        x = affine(graph.rounded(x), "CNN_proj", "proj")  # U, P
    graph.output(x)
    return graph.model("encoder")


def _add_cnn(graph: GraphWriter, filters: Filters, stored: Mapping[str, Any], ids: Value) -> Value:
    """Add the character CNN before its activation: integer (U, C) -> float32 (U, F)."""
    table = graph.constant("char_embed", stored["char_embed"])
    characters = graph.add("Transpose", ids, perm=[1, 0])
    vectors = graph.add("Gather", table, characters)  # C, U, E
    n_tokens = graph.add("Shape", ids, start=0, end=1)

    maxima = []
    for i, (width, n_filters) in enumerate(filters):
        # The inputs of the filter at each place: C - width + 1, U, width E
        shifted = []
        for start in range(width):
            end = start + 1 - width or END  # from the last character
            shifted.append(graph.slice(vectors, start, end, axis=0))
        windows = graph.concat(shifted, axis=2)
        weight = stored[f"CNN/W_cnn_{i}"].reshape(-1, n_filters)  # width E, n
        maximum = _add_maximum(graph, f"filter_{i}", windows, n_tokens, weight)
        maxima.append(maximum + graph.constant(f"CNN/b_cnn_{i}", stored[f"CNN/b_cnn_{i}"]))
    return graph.concat(maxima, axis=1)


def _add_maximum(
    graph: GraphWriter, name: str, windows: Value, n_tokens: Value, weight: np.ndarray
) -> Value:
    """Add the maximum of filters over all places, one at a time, so that the scores fit the cache:
    float32 (places, U, K) -> (U, n)."""
    n_inputs, n_filters = weight.shape
    shape = graph.add("Concat", n_tokens, (n_filters,), axis=0)
    lowest = graph.add("Expand", LOWEST, shape)  # U, n

    body = graph.body(f"{name}_")
    best = body.input(f"{name}_old", "U", n_filters)
    window = body.input(f"{name}_window", "U", n_inputs)
    scores = body.add("MatMul", window, body.constant(name, weight))
    body.output(body.add("Max", best, scores))
    (maximum,) = graph.scan(body, [lowest], [windows])
    return maximum
