"""ONNX graphs of a biLM's layers with products of eight-bit integers.

Weights have one scale per column, which is fixed. Inputs of products have one scale per row, 1 /
`levels` of the row's largest absolute value, so that a row does not depend on other rows. The
character CNN computes in float32: in eight bits, its errors would be larger than those of all
other layers together.

ONNX Runtime is fast only for products of an unsigned with a signed matrix, so `levels + 1` is added
to the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from bilm.activations import ACTIVATIONS
from bilm.layers.int8_weights import Int8Matrix
from bilm.layers.stack import LSTMStack
from bilm.layers.token_encoder import TokenEncoder
from bilm.support.imports import needed

OPSET = 17  # ONNX 1.12, which all runtimes since 2022 support
IR_VERSION = 9  # of ONNX 1.14; older runtimes can read it
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations
TINY = np.float32(1e-30)  # the smallest scale, for rows of zeros
LOWEST = np.finfo(np.float32).min


class GraphWriter:
    """Collects the nodes and the constants of an ONNX graph.

    Args:
        levels: largest quantized input of a product, at most 127.
        prefix: start of the names of values. An outer graph must use other names.
        constants: constants of the outer graph, to which those of this graph are added; None for
            a graph that is not part of another.
    Raises: MissingExtraError without the packages of the extra `onnx`.
    """

    def __init__(self, levels: int, prefix: str = "", constants: dict[str, Any] | None = None):
        with needed("onnx", "precision int8"):
            import onnx
        self.onnx, self.levels, self.prefix = onnx, levels, prefix
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {} if constants is None else constants

    def body(self, prefix: str) -> GraphWriter:
        """Return a writer of a graph inside this one, which shares its constants."""
        return GraphWriter(self.levels, prefix, self.constants)

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        return self.add_node(kind, inputs, 1, domain, **attributes)[0]

    def add_node(
        self, kind: str, inputs: Sequence[str], n_outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        outputs = [f"{self.prefix}v{len(self.nodes)}_{k}" for k in range(n_outputs)]
        make = self.onnx.helper.make_node
        self.nodes.append(make(kind, inputs, outputs, domain=domain, **attributes))
        return outputs

    def constant(self, name: str, value: Any) -> str:
        """Add a constant unless one has this name; return the name."""
        if name not in self.constants:
            array = np.asarray(value, order="C")
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """Return the name of a constant int64 (n,)."""
        return self.constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def value(self, name: str, *shape: str | int, dtype: str = "float32") -> Any:
        """Return the declaration of an input or output."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def zero_points(self, x: str) -> str:
        """Add uint8 (B,), all `levels + 1`, for x (B, ...)."""
        value = self.onnx.numpy_helper.from_array(np.array([self.levels + 1], np.uint8))
        return self.add("ConstantOfShape", self.add("Shape", x, start=0, end=1), value=value)

    def rounded(self, x: str, zero_points: str) -> tuple[str, str]:
        """Add integers of a float32 (B, K), uint8 (B, K), and their scales, float32 (B, 1).

        Args:
            zero_points: result of `zero_points`. QuantizeLinear with a scale per row reads a zero
                point per row.
        """
        largest = self.add("ReduceMax", self.add("Abs", x), axes=[1], keepdims=1)
        scale = self.add("Mul", largest, self.constant("unit", np.float32(1 / self.levels)))
        scale = self.add("Max", scale, self.constant("tiny", TINY))
        scales = self.add("Squeeze", scale, self.integers(1))
        return self.add("QuantizeLinear", x, scales, zero_points, axis=0), scale

    def integer_product(self, integers: str, name: str, weight: Int8Matrix) -> str:
        """Add the product of integers, uint8 (..., K), minus their zero point, with a weight of
        this name, float32 (..., N)."""
        return self.add(
            "MatMulIntegerToFloat",
            integers,
            self.constant(f"{name}_values", weight.values),
            self.constant("one", np.float32(1)),
            self.constant(f"{name}_scales", weight.scales),
            self.constant("zero_point", np.uint8(self.levels + 1)),
            domain=MICROSOFT,
        )

    def product(self, rounded: tuple[str, str], name: str, weight: Int8Matrix) -> str:
        """Add the product of the result of `rounded` with a weight of this name."""
        integers, scale = rounded
        return self.add("Mul", self.integer_product(integers, name, weight), scale)

    def clipped(self, name: str, x: str, bound: float | None) -> str:
        """Add x with absolute values of at most a bound; None or 0 for no bound."""
        if not bound:
            return x
        limits = (("low", -bound), ("high", bound))
        names = [self.constant(f"{name}_{kind}", np.float32(value)) for kind, value in limits]
        return self.add("Clip", x, *names)

    def graph(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return an `onnx.GraphProto`. That of a body uses the constants of the outer graph."""
        constants = [] if self.prefix else list(self.constants.values())
        return self.onnx.helper.make_graph(self.nodes, name, inputs, outputs, constants)

    def model(self, name: str, inputs: list[Any], outputs: list[Any]) -> bytes:
        """Return a serialized `onnx.ModelProto` of the graph."""
        helper = self.onnx.helper
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        graph = self.graph(name, inputs, outputs)
        made = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        return made.SerializeToString()


# --- LSTMs ---


def stack_model(stack: LSTMStack, levels: int) -> bytes:
    """Return a serialized ONNX model that runs a stack over the steps of a window, a `Scan`.

    The cells of the stack lose their weights.

    Inputs: `state_0`, ..., by layer, cell before hidden, float32 (B, D) and (B, P); `vectors`,
    float32 (T, B, P); `going_on`, float32 (T, B, 1), factors of the state before each step: 0 where
    a row starts from zero state.
    Outputs: the last state; for each layer float32 (T, B, P).
    """
    writer, width = GraphWriter(levels), stack.projection_dim
    widths = [w for _ in stack.layers for w in (stack.dim, width)]
    state = [f"state_{i}" for i in range(len(widths))]
    zero_points = writer.zero_points(state[0])
    body = writer.body("step_")
    old, x, factor = [f"old_{i}" for i in range(len(widths))], "x", "factor"
    inputs = [body.value(part, "B", w) for part, w in zip(old, widths, strict=True)]
    inputs += [body.value(x, "B", width), body.value(factor, "B", 1)]
    last, outputs = [], []
    for k, layer in enumerate(stack.layers):
        before = [body.add("Mul", part, factor) for part in old[2 * k : 2 * k + 2]]
        new = _add_step(body, f"cell_{k}", layer.cell, x, before, zero_points)
        last += new
        x = body.add("Add", new[1], x) if k and stack.use_skip_connections else new[1]
        # The results of a body must have different names.
        outputs.append(body.add("Identity", x) if x in last else x)
    results = [body.value(part, "B", w) for part, w in zip(last, widths, strict=True)]
    results += [body.value(part, "B", width) for part in outputs]
    found = writer.add_node(
        "Scan",
        [*state, "vectors", "going_on"],
        len(results),
        body=body.graph("step", inputs, results),
        num_scan_inputs=2,
    )
    given = [writer.value(name, "B", w) for name, w in zip(state, widths, strict=True)]
    given += [writer.value("vectors", "T", "B", width), writer.value("going_on", "T", "B", 1)]
    returned = [writer.value(name, "B", w) for name, w in zip(found, widths, strict=False)]
    returned += [writer.value(name, "T", "B", width) for name in found[len(last) :]]
    return writer.model("stack", given, returned)


def _add_step(
    writer: GraphWriter, name: str, cell: Any, x: str, state: Sequence[str], zero_points: str
) -> list[str]:
    """Add a step of an `LSTMCell`; return the new cell and hidden state.

    There is one product per gate: splitting the result of a product for all gates would copy it,
    and four results are smaller than the cache.
    """
    weights, cell.laid_out = cell.laid_out, None  # the graph contains them
    add, (old, hidden) = writer.add, state
    inputs = writer.rounded(add("Concat", x, hidden, axis=1), zero_points)
    values, scales = (np.split(part, 4, axis=-1) for part in weights.kernel)
    gates = []
    for k, bias in enumerate(np.split(weights.bias, 4)):
        gate = writer.product(inputs, f"{name}_kernel_{k}", Int8Matrix(values[k], scales[k]))
        bias = bias + np.float32(k == 2)  # the forget gate's
        gate = add("Add", gate, writer.constant(f"{name}_bias_{k}", bias))
        gates.append(add("Tanh" if k == 1 else "Sigmoid", gate))
    i, j, f, o = gates
    new = add("Add", add("Mul", f, old), add("Mul", i, j))
    new = writer.clipped(f"{name}_clip", new, cell.cell_clip)
    hidden = add("Mul", o, add("Tanh", new))
    if weights.projection is not None:
        rounded = writer.rounded(hidden, zero_points)
        hidden = writer.product(rounded, f"{name}_projection", weights.projection)
        hidden = writer.clipped(f"{name}_projection_clip", hidden, cell.proj_clip)
    return [new, hidden]


# --- token vectors ---


def encoder_model(encoder: TokenEncoder, levels: int) -> bytes:
    """Return a serialized ONNX model of a token encoder, which loses its weights.

    Input: `ids`, int32 (U, C), or (U, 1 + C) with a table of words. Output: float32 (U, P).
    """
    writer, ids, features = GraphWriter(levels), "ids", []
    inputs = [writer.value(ids, "U", "C", dtype="int32")]
    zero_points = writer.zero_points(ids)
    if encoder.words is not None:
        words = writer.add("Gather", ids, writer.constant("first", np.int64(0)), axis=1)
        table = writer.constant("word_table", ops.convert_to_numpy(encoder.word_table))
        features.append(writer.add("Gather", table, words))
        ends = [writer.integers(n) for n in (1, np.iinfo(np.int64).max, 1)]
        ids = writer.add("Slice", ids, *ends)
    if encoder.filters:
        x = _add_cnn(writer, encoder.cnn, ids)
        features.append(_add_highway(writer, encoder.highway, x, zero_points))
    x = writer.add("Concat", *features, axis=1) if len(features) > 1 else features[0]
    if encoder.kernel is not None:
        x = writer.product(writer.rounded(x, zero_points), "projection", encoder.kernel)
        bias = writer.constant("projection_bias", ops.convert_to_numpy(encoder.bias))
        encoder.kernel = None  # the graph contains it
        x = writer.add("Add", x, bias)
    outputs = [writer.value(x, "U", encoder.projection_dim)]
    return writer.model("encoder", inputs, outputs)


def _add_cnn(writer: GraphWriter, cnn: Any, ids: str) -> str:
    """Add a `CharacterCNN`: integer (U, C) -> float32 (U, F)."""
    add = writer.add
    characters = writer.constant("characters", ops.convert_to_numpy(cnn.embedding))
    vectors = add("Gather", characters, add("Transpose", ids, perm=[1, 0]))  # C, U, E
    n_tokens = add("Shape", ids, start=0, end=1)
    maxima = []
    for i, ((width, n_filters), kernel) in enumerate(zip(cnn.filters, cnn.kernels, strict=True)):
        weight = ops.convert_to_numpy(kernel).reshape(-1, n_filters)
        windows = _add_windows(writer, vectors, width)
        maxima.append(_add_maximum(writer, f"filter_{i}", windows, n_tokens, weight))
    maximum = add("Concat", *maxima, axis=1) if len(maxima) > 1 else maxima[0]
    biases = np.concatenate([ops.convert_to_numpy(bias) for bias in cnn.biases])
    maximum = add("Add", maximum, writer.constant("filter_bias", biases))
    return add(ACTIVATIONS[cnn.activation].onnx, maximum)


def _add_windows(writer: GraphWriter, vectors: str, width: int) -> str:
    """Add the inputs of a filter at each place: (C, U, E) -> (C - width + 1, U, width E)."""
    if width == 1:
        return vectors
    last = np.iinfo(np.int64).max
    ends = [start - width + 1 or last for start in range(width)]
    parts = [
        writer.add("Slice", vectors, *(writer.integers(n) for n in (start, end, 0)))
        for start, end in enumerate(ends)
    ]
    return writer.add("Concat", *parts, axis=2)


def _add_maximum(
    writer: GraphWriter, name: str, windows: str, n_tokens: str, weight: np.ndarray
) -> str:
    """Add the maximum of filters over all places: float32 (places, U, K) -> (U, n).

    Scores of one place at a time fit into the processor's cache.
    """
    n_inputs, n_filters = weight.shape
    shape = writer.add("Concat", n_tokens, writer.integers(n_filters), axis=0)
    start = writer.add("Expand", writer.constant("lowest", LOWEST), shape)
    body = writer.body(f"{name}_")
    old, window = f"{name}_old", f"{name}_window"
    best = body.add("Max", old, body.add("MatMul", window, body.constant(name, weight)))
    inputs = [body.value(old, "U", n_filters), body.value(window, "U", n_inputs)]
    step = body.graph(f"{name}_step", inputs, [body.value(best, "U", n_filters)])
    return writer.add("Scan", start, windows, body=step, num_scan_inputs=1)


def _add_highway(writer: GraphWriter, highway: Any, x: str, zero_points: str) -> str:
    """Add a `Highway`: float32 (U, D) -> (U, D)."""
    add = writer.add
    for i in range(highway.n_layers):
        rounded, parts = writer.rounded(x, zero_points), []
        for kind in ("gate", "transform"):
            kernels = {"gate": highway.gates, "transform": highway.transforms}[kind]
            bias = {"gate": highway.gate_biases, "transform": highway.biases}[kind][i]
            name = f"highway_{i}_{kind}"
            part = writer.product(rounded, name, kernels[i])
            kernels[i] = None  # the graph contains it
            bias = writer.constant(f"{name}_bias", ops.convert_to_numpy(bias))
            parts.append(add("Add", part, bias))
        gate, transform = add("Sigmoid", parts[0]), add("Relu", parts[1])
        x = add("Add", x, add("Mul", gate, add("Sub", transform, x)))
    return x
