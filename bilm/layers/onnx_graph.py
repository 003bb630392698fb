"""Writes ONNX graphs: nodes, constants, eight-bit products, and graphs inside others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bilm.support.imports import needed

OPSET = 17  # ONNX 1.12, which all runtimes since 2022 support
IR_VERSION = 9  # of ONNX 1.14; older runtimes can read it
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations
END = np.iinfo(np.int64).max  # as the end of a slice
FULL = 127  # largest quantized input
TINY = 1e-30  # the smallest scale, for rows of zeros


class Int8Matrix(NamedTuple):
    """A matrix, `values * scales`: `values` int8 (K, N), `scales` float32 (N,), one per column."""

    values: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class Value:
    """A tensor in a graph: an input, a constant or the output of a node. `+`, `-` and `*`, with
    another value or a number on the right, add a node to the graph."""

    graph: GraphWriter
    name: str

    def __add__(self, other: Operand) -> Value:
        return self.graph.add("Add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.add("Sub", self, other)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.add("Mul", self, other)


# A number is a constant float32 (), and a tuple a constant int64 (n,).
Operand: TypeAlias = Value | float | tuple[int, ...]


class Rounded(NamedTuple):
    """A matrix in eight bits."""

    integers: Value  # uint8 (B, K)
    scale: Value  # float32 (B, 1)


class GraphWriter:
    """Collects the inputs, nodes, constants and outputs of an ONNX graph. `levels`, at most `FULL`,
    is the largest quantized input of a product; call `set_rows` before the first one. Raises:
    MissingExtraError without the packages of the extra `onnx`."""

    def __init__(self, levels: int = FULL):
        with needed("onnx", "precision int8"):
            import onnx
        self.onnx = onnx
        self.levels = levels
        self.constants: dict[str, Any] = {}
        self._start("")

    def _start(self, prefix):
        self.prefix = prefix  # of the names of nodes' outputs; empty for the outermost graph
        self.inputs = []
        self.nodes = []
        self.outputs = []

    def body(self, prefix: str) -> Any:
        """Return a writer of a graph inside this one, which shares its constants."""
        body = copy.copy(self)
        body._start(prefix)
        return body

    def input(self, name: str, *shape: str | int, dtype: str = "float32") -> Value:
        """Declare an input; a string in the shape names a size that is not known."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return Value(self, name)

    def output(self, *values: Value) -> None:
        """Declare float32 values as the next outputs."""
        helper = self.onnx.helper
        for value in values:
            kind = self.onnx.TensorProto.FLOAT
            self.outputs.append(helper.make_tensor_value_info(value.name, kind, shape=None))

    def constant(self, name: str, array: np.ndarray) -> Value:
        """Add a constant unless one has this name."""
        if name not in self.constants:
            array = np.asarray(array, order="C")
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return Value(self, name)

    def add(self, kind: str, *inputs: Operand, **attributes: Any) -> Value:
        """Add a node with one output, and return its output."""
        return self._add_node(kind, inputs, 1, **attributes)[0]

    def _add_node(self, kind, inputs, n_outputs, **attributes):
        names = []
        for operand in inputs:
            if not isinstance(operand, Value):
                dtype = np.int64 if isinstance(operand, tuple) else np.float32
                operand = self.constant(f"constant_{operand!r}", np.array(operand, dtype))
            names.append(operand.name)
        outputs = [f"{self.prefix}v{len(self.nodes)}_{k}" for k in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, names, outputs, **attributes))
        return [Value(self, name) for name in outputs]

    def slice(self, x: Value, start: int, end: int, axis: int) -> Value:
        """Add the part of x from `start` to before `end` along an axis."""
        return self.add("Slice", x, (start,), (end,), (axis,))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Add the values one after the other along an axis."""
        return self.add("Concat", *values, axis=axis) if len(values) > 1 else values[0]

    def scan(
        self, body: GraphWriter, start: Sequence[Value], series: Sequence[Value]
    ) -> list[Value]:
        """Run `body` for each step of some series, along their first axis. It computes the next
        carried values and the values of a step, from the carried values, first `start`, and one
        step of each series. Returns: the last carried values; then each series of values."""
        inputs = [*start, *series]
        n_outputs = len(body.outputs)
        step = body.graph("step")
        return self._add_node("Scan", inputs, n_outputs, body=step, num_scan_inputs=len(series))

    def set_rows(self, x: Value) -> None:
        """Set the number of rows of all inputs of products, that of x (B, ...)."""
        value = self.onnx.numpy_helper.from_array(np.array([self.levels + 1], np.uint8))
        n_rows = self.add("Shape", x, start=0, end=1)
        # QuantizeLinear with a scale per row reads a zero point per row, uint8 (B,).
        self.zero_points = self.add("ConstantOfShape", n_rows, value=value)

    def rounded(self, x: Value) -> Rounded:
        """Add the rounding of a matrix, float32 (B, K)."""
        absolute = self.add("Abs", x)
        largest = self.add("ReduceMax", absolute, axes=[1], keepdims=1)  # B, 1
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

    def graph(self, name: str) -> Any:
        """Return the `onnx.GraphProto`. A graph inside another one uses the constants of that."""
        constants = [] if self.prefix else list(self.constants.values())
        return self.onnx.helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)

    def model(self, name: str) -> bytes:
        """Return a serialized `onnx.ModelProto` of the graph."""
        helper = self.onnx.helper
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(self.graph(name), opset_imports=domains, ir_version=IR_VERSION)
        return model.SerializeToString()
