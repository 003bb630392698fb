"""ONNX graphs of a biLM's layers with products of eight-bit integers.

Weights have one scale per column. Inputs of products have one scale per row, 1 / `levels` of the
row's largest absolute value, so that a row does not depend on other rows. The character CNN
computes in float32: in eight bits, its errors would exceed those of all other layers together.

ONNX Runtime is fast only for products of an unsigned with a signed matrix, so `levels + 1` is added
to the inputs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bilm.activations import ACTIVATIONS
from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.lstm import LSTMCell
from bilm.layers.lstm_equation import Library, LSTMState, forget_bias, next_state
from bilm.layers.onnx_graph import END, MICROSOFT, GraphWriter, Value
from bilm.layers.stack import LSTMStack
from bilm.layers.token_encoder import Highway, TokenEncoder
from bilm.layers.weighted import Int8Matrix
from bilm.tensors import GATES, N_GATES

TINY = 1e-30  # the smallest scale, for rows of zeros
LOWEST = float(np.finfo(np.float32).min)


class Rounded(NamedTuple):
    """A matrix in eight bits."""

    integers: Value  # uint8 (B, K)
    scale: Value  # float32 (B, 1)


class Int8Graph(GraphWriter):
    """A graph with products of eight-bit integers; call `set_rows` before the first one. `levels`,
    at most 127, is the largest quantized input of a product."""

    def __init__(self, levels: int):
        super().__init__()
        self.levels = levels

    def set_rows(self, x: Value) -> None:
        """Set the number of rows of all inputs of products, that of x (B, ...)."""
        value = self.onnx.numpy_helper.from_array(np.array([self.levels + 1], np.uint8))
        n_rows = self.add("Shape", x, start=0, end=1)
        # QuantizeLinear with a scale per row reads a zero point per row, uint8 (B,).
        self.zero_points = self.add("ConstantOfShape", n_rows, value=value)

    def rounded(self, x: Value) -> Rounded:
        """Add the rounding of a matrix, float32 (B, K)."""
        largest = self.add("ReduceMax", self.add("Abs", x), axes=[1], keepdims=1)  # B, 1
        scale = self.add("Max", largest * (1 / self.levels), TINY)
        scales = self.add("Squeeze", scale, (1,))  # B
        return Rounded(self.add("QuantizeLinear", x, scales, self.zero_points, axis=0), scale)

    def product(self, x: Rounded, name: str, weight: Int8Matrix) -> Value:
        """Add the product of a matrix with a weight of this name: float32 (B, N)."""
        return self.integer_product(x.integers, name, weight) * x.scale

    def integer_product(self, integers: Value, name: str, weight: Int8Matrix) -> Value:
        """Add the product of integers minus zero point: uint8 (..., K) -> float32 (..., N)."""
        return self.add(
            "MatMulIntegerToFloat",
            integers,
            self.constant(f"{name}_values", weight.values),
            1.0,
            self.constant(f"{name}_scales", weight.scales),
            self.constant("zero_point", np.uint8(self.levels + 1)),
            domain=MICROSOFT,
        )


# --- LSTMs ---


def stack_model(stack: LSTMStack, levels: int) -> bytes:
    """Return a serialized ONNX model that runs a frozen stack over a window.

    Inputs: `state_0`, ..., by layer, cell before hidden, float32 (B, D) and (B, P); `vectors`,
    float32 (T, B, P); `going_on`, float32 (T, B, 1), factors of the state before each step: 0 where
    a row starts from zero state.
    Outputs: the last state; for each layer float32 (T, B, P).
    """
    graph = Int8Graph(levels)
    widths = [stack.dim, stack.projection_dim] * len(stack.layers)
    state = [graph.input(f"state_{k}", "B", width) for k, width in enumerate(widths)]
    vectors = graph.input("vectors", "T", "B", stack.projection_dim)
    going_on = graph.input("going_on", "T", "B", 1)
    graph.set_rows(state[0])

    step = _stack_step(graph.body("step_"), stack, widths)
    graph.output(*graph.scan(step, state, [vectors, going_on]))
    return graph.model("stack")


def _stack_step(graph: Int8Graph, stack: LSTMStack, widths: Sequence[int]) -> Int8Graph:
    """Write the graph of one step of all layers; `widths`: of the arrays of the state."""
    old = [graph.input(f"old_{k}", "B", width) for k, width in enumerate(widths)]
    x = graph.input("x", "B", stack.projection_dim)
    factor = graph.input("factor", "B", 1)

    new: list[Value] = []
    outputs: list[Value] = []
    for k, layer in enumerate(stack.layers):
        before = LSTMState(old[2 * k] * factor, old[2 * k + 1] * factor)
        after = _add_step(graph, f"cell_{k}", layer.cell, x, before)
        new += after
        x = after.hidden + x if k and stack.use_skip_connections else after.hidden
        outputs.append(x)

    graph.output(*new)
    for x in outputs:
        # The results of a graph must have different names.
        graph.output(graph.add("Identity", x) if x in new else x)
    return graph


def _add_step(graph: Int8Graph, name: str, cell: LSTMCell, x: Value, old: LSTMState) -> LSTMState:
    """Add a step of an `LSTMCell`, and return the new state. There is one product per gate, because
    splitting the result of one for all gates would copy it, and four results fit the cache."""
    read = graph.rounded(graph.concat([x, old.hidden], axis=1))  # B, 2 P
    values = np.split(cell.kernel.values, N_GATES, axis=1)
    scales = np.split(cell.kernel.scales, N_GATES)
    biases = np.split(ops.convert_to_numpy(cell.bias) + forget_bias(cell.dim), N_GATES)
    gates = []
    for k, gate in enumerate(GATES):
        product = graph.product(read, f"{name}_kernel_{gate}", Int8Matrix(values[k], scales[k]))
        gates.append(product + graph.constant(f"{name}_bias_{gate}", biases[k]))  # B, D

    def matmul(x, weight):
        return graph.product(graph.rounded(x), f"{name}_projection", weight)

    library = library_of(graph, matmul)
    return next_state(library, gates, old, cell.projection, cell.clips).state


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


def encoder_model(encoder: TokenEncoder, levels: int) -> bytes:
    """Return a serialized ONNX model of a frozen token encoder: `ids`, int32 (U, C), or (U, 1 + C)
    with a table of words -> float32 (U, P)."""
    graph = Int8Graph(levels)
    ids = graph.input("ids", "U", "C", dtype="int32")
    graph.set_rows(ids)

    features = []
    if encoder.words is not None:
        words = graph.add("Gather", ids, graph.constant("first", np.int64(0)), axis=1)  # U
        table = graph.constant("word_table", ops.convert_to_numpy(encoder.word_table))
        features.append(graph.add("Gather", table, words))  # U, width
        ids = graph.slice(ids, 1, END, axis=1)  # U, C
    if encoder.cnn is not None:
        features.append(_add_highway(graph, encoder.highway, _add_cnn(graph, encoder.cnn, ids)))
    x = graph.concat(features, axis=1)  # U, features

    if encoder.kernel is not None:
        bias = graph.constant("projection_bias", ops.convert_to_numpy(encoder.bias))
        x = graph.product(graph.rounded(x), "projection", encoder.kernel) + bias  # U, P
    graph.output(x)
    return graph.model("encoder")


def _add_cnn(graph: Int8Graph, cnn: CharacterCNN, ids: Value) -> Value:
    """Add a `CharacterCNN`: integer (U, C) -> float32 (U, F)."""
    characters = graph.constant("characters", ops.convert_to_numpy(cnn.embedding))
    vectors = graph.add("Gather", characters, graph.add("Transpose", ids, perm=[1, 0]))  # C, U, E
    n_tokens = graph.add("Shape", ids, start=0, end=1)

    maxima = []
    for i, ((width, n_filters), kernel) in enumerate(zip(cnn.filters, cnn.kernels, strict=True)):
        weight = ops.convert_to_numpy(kernel).reshape(-1, n_filters)  # width E, n
        # The inputs of the filter at each place: C - width + 1, U, width E
        shifted = []
        for start in range(width):
            end = start + 1 - width or END  # from the last character
            shifted.append(graph.slice(vectors, start, end, axis=0))
        windows = graph.concat(shifted, axis=2)
        maxima.append(_add_maximum(graph, f"filter_{i}", windows, n_tokens, weight))

    biases = np.concatenate([ops.convert_to_numpy(bias) for bias in cnn.biases])
    maximum = graph.concat(maxima, axis=1) + graph.constant("filter_bias", biases)
    return graph.add(ACTIVATIONS[cnn.activation].onnx, maximum)


def _add_maximum(
    graph: Int8Graph, name: str, windows: Value, n_tokens: Value, weight: np.ndarray
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


def _add_highway(graph: Int8Graph, highway: Highway, x: Value) -> Value:
    """Add a `Highway`: float32 (U, D) -> (U, D)."""

    def affine(name, read, weight, bias):
        bias = graph.constant(f"{name}_bias", ops.convert_to_numpy(bias))
        return graph.product(read, name, weight) + bias

    for i, (gate_weight, gate_bias, weight, bias) in enumerate(highway.layers):
        read = graph.rounded(x)
        gate = affine(f"highway_{i}_gate", read, gate_weight, gate_bias)
        transform = affine(f"highway_{i}_transform", read, weight, bias)
        x = x + graph.add("Sigmoid", gate) * (graph.add("Relu", transform) - x)
    return x
