"""The LSTM stacks of a biLM with products of eight-bit integers, which ONNX Runtime computes.

A direction is one ONNX graph, a `Scan` over steps. Weights have one scale per column, which is
fixed. Inputs of products have one scale per row and step, 1/127 of the row's largest absolute
value, so that a row does not depend on other rows.

ONNX Runtime is fast only for products of an unsigned with a signed matrix, so 128 is added to the
inputs. On x86 processors without VNNI instructions it adds pairs of products in 16 bits, which may
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
from bilm.layers.int8_weights import LARGEST, Int8Cell, Int8Matrix
from bilm.layers.stack import LSTMStack
from bilm.support.imports import needed
from bilm.support.process import available_cores

OPSET = 17
IR_VERSION = 9  # of ONNX 1.14; older runtimes can read it
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations
FULL, REDUCED = 127, 63  # largest quantized inputs
TINY = np.float32(1e-30)  # the smallest scale, for rows of zeros


class Int8Stacks:
    """Runs the stacks of a biLM in eight bits, a window of steps at a time.

    The cells' states, gates, clips and sums are float32.

    Args:
        model: a frozen, built biLM with `precision` "int8". The weights of its stacks move here.
    Raises: MissingExtraError without the packages of the extra `onnx`.
    """

    def __init__(self, model: BiLM):
        self._n_layers, levels = model.options.lstm.n_layers, largest_input()
        self._zero_point = np.uint8(levels + 1)
        n_threads = max(available_cores() // len(model.directions), 1)
        self._sessions = {
            d: _stack_session(model.stacks[d], levels, n_threads) for d in model.directions
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
        same = {
            "going_on": going_on,
            "zero_points": np.full(going_on.shape[1], self._zero_point),
        }
        n_parts = 2 * self._n_layers
        state = [ops.convert_to_numpy(part) for part in state]

        def run(k: int, direction: str) -> tuple[np.ndarray, list[np.ndarray]]:
            vectors = table[ops.convert_to_numpy(places[direction]).T]  # T, B, P
            parts = state[k * n_parts : (k + 1) * n_parts]
            names = [f"state_{i}" for i in range(n_parts)]
            feed = dict(zip(names, parts, strict=True), vectors=vectors, **same)
            found = self._sessions[direction].run(None, feed)
            layers = np.stack([vectors, *found[n_parts:]])
            return layers.transpose(0, 2, 1, 3), found[:n_parts]

        results = list(self._threads.map(run, range(len(self._sessions)), self._sessions))
        layers = {d: found for d, (found, _) in zip(self._sessions, results, strict=True)}
        return layers, [part for _, parts in results for part in parts]


def _going_on(fresh: Any) -> np.ndarray:
    """Return the factors of states: boolean (B, T) -> float32 (T, B, 1), 0 for a fresh row."""
    return np.where(ops.convert_to_numpy(fresh).T, np.float32(0), np.float32(1))[:, :, None]


def _packages() -> tuple[Any, Any]:
    """Import and return `onnx` and `onnxruntime`. Raises: MissingExtraError."""
    with needed("onnx", "precision int8"):
        import onnx
        import onnxruntime
    return onnx, onnxruntime


@functools.cache
def largest_input() -> int:
    """Return the largest quantized input with which this processor's products are exact.

    Raises: MissingExtraError without the packages of the extra `onnx`.
    """
    onnx, _ = _packages()
    writer = _Writer(onnx)
    n_rows = 64
    largest = Int8Matrix(np.full((n_rows, 16), LARGEST, np.int8), np.ones(16, np.float32))
    found = writer.integer_product("x", "weight", largest, FULL)
    result = writer.value(found, 1, 16)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, n_rows])
    session = _session(writer.model("product", [x], [result]), 1)
    product = session.run(None, {"x": np.full((1, n_rows), 2 * FULL + 1, np.uint8)})[0]
    return FULL if np.all(product == FULL * LARGEST * n_rows) else REDUCED


def _stack_session(stack: LSTMStack, levels: int, n_threads: int) -> Any:
    """Return a session that runs a stack, which loses its weights."""
    return _session(_StackGraph(stack, levels).serialized(), n_threads)


def _session(model: bytes, n_threads: int) -> Any:
    """Return an `onnxruntime.InferenceSession` of a serialized model."""
    _, onnxruntime = _packages()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = n_threads, 1
    settings.log_severity_level = 3
    # Between runs, waiting threads must not use the processor, which other libraries need.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


class _Writer:
    """Collects the nodes and the constants of an ONNX graph.

    Args:
        onnx: the package.
    """

    def __init__(self, onnx: Any):
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        return self.add_node(kind, inputs, 1, domain, **attributes)[0]

    def add_node(
        self, kind: str, inputs: Sequence[str], n_outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        outputs = [f"v{len(self.nodes)}_{k}" for k in range(n_outputs)]
        make = self.onnx.helper.make_node
        self.nodes.append(make(kind, inputs, outputs, domain=domain, **attributes))
        return outputs

    def constant(self, name: str, value: Any) -> str:
        """Add a constant unless one has this name; return the name."""
        if name not in self.constants:
            array = np.asarray(value, order="C")
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def value(self, name: str, *shape: str | int) -> Any:
        """Return the declaration of a float32 input or output."""
        kind = self.onnx.TensorProto.FLOAT
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def integer_product(self, x: str, name: str, weight: Int8Matrix, levels: int) -> str:
        """Add the product of integers, uint8 (B, K), with a weight of this name.

        Args:
            levels: largest quantized input; `levels + 1` is subtracted from x.
        """
        return self.add(
            "MatMulIntegerToFloat",
            x,
            self.constant(f"{name}_values", weight.values),
            self.constant("one", np.float32(1)),
            self.constant(f"{name}_scales", weight.scales),
            self.constant("zero_point", np.uint8(levels + 1)),
            domain=MICROSOFT,
        )

    def model(self, name: str, inputs: list[Any], outputs: list[Any]) -> bytes:
        """Return a serialized `onnx.ModelProto` of the graph."""
        helper = self.onnx.helper
        constants = list(self.constants.values())
        graph = helper.make_graph(self.nodes, name, inputs, outputs, constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        return model.SerializeToString()


class _StackGraph:
    """Writes the ONNX graph of a stack.

    Inputs: `state_0`, ..., by layer, cell before hidden, float32 (B, D) and (B, P); `vectors`,
    float32 (T, B, P); `going_on`, float32 (T, B, 1); `zero_points`, uint8 (B,), all `levels + 1`.
    Outputs: the last state; for each layer float32 (T, B, P).

    Args:
        stack: the stack, whose cells lose their weights.
        levels: largest quantized input.
    """

    def __init__(self, stack: LSTMStack, levels: int):
        onnx, _ = _packages()
        self._stack, self._levels = stack, levels
        self._width = stack.projection_dim
        self._step_writer, self._writer = _Writer(onnx), _Writer(onnx)

    def serialized(self) -> bytes:
        """Return the model, a serialized `onnx.ModelProto`."""
        writer, onnx = self._writer, self._writer.onnx
        widths = [w for _ in self._stack.layers for w in (self._stack.dim, self._width)]
        state = [f"state_{i}" for i in range(len(widths))]
        last = [f"last_{name}" for name in state]
        outputs = [f"layer_{i}" for i in range(len(self._stack.layers))]
        body = self._body([f"old_{name}" for name in state], widths)
        writer.nodes = [
            onnx.helper.make_node(
                "Scan",
                [*state, "vectors", "going_on"],
                [*last, *outputs],
                body=body,
                num_scan_inputs=2,
            )
        ]
        inputs = [writer.value(name, "B", w) for name, w in zip(state, widths, strict=True)]
        inputs += [writer.value("vectors", "T", "B", self._width)]
        inputs += [writer.value("going_on", "T", "B", 1)]
        # QuantizeLinear with a scale per row reads a zero point per row.
        per_row = onnx.TensorProto.UINT8, ["B"]
        inputs += [onnx.helper.make_tensor_value_info("zero_points", *per_row)]
        results = [writer.value(name, "B", w) for name, w in zip(last, widths, strict=True)]
        results += [writer.value(name, "T", "B", self._width) for name in outputs]
        writer.constants = self._step_writer.constants
        return writer.model("stack", inputs, results)

    def _body(self, names: list[str], widths: list[int]) -> Any:
        """Return the graph of one step, which uses the constants of the outer graph."""
        writer = self._step_writer
        x, outputs = "x", []
        state: list[str] = []
        for k, layer in enumerate(self._stack.layers):
            new = self._step(f"cell_{k}", layer.cell, x, *names[2 * k : 2 * k + 2])
            state += new
            x = writer.add("Add", new[1], x) if k and self._stack.use_skip_connections else new[1]
            outputs.append(x)
        # The results of a body must have different names.
        outputs = [writer.add("Identity", name) if name in state else name for name in outputs]
        inputs = [writer.value(name, "B", w) for name, w in zip(names, widths, strict=True)]
        inputs += [writer.value("x", "B", self._width), writer.value("keep", "B", 1)]
        results = [writer.value(name, "B", w) for name, w in zip(state, widths, strict=True)]
        results += [writer.value(name, "B", self._width) for name in outputs]
        return writer.onnx.helper.make_graph(writer.nodes, "step", inputs, results)

    def _step(self, name: str, cell: Any, x: str, old_cell: str, old_hidden: str) -> list[str]:
        """Add a step of an `LSTMCell`, whose weights are removed; return the new state's names."""
        weights: Int8Cell = cell.laid_out
        cell.laid_out = None
        writer, add = self._step_writer, self._step_writer.add
        old, hidden = (add("Mul", part, "keep") for part in (old_cell, old_hidden))
        gates = self._product(f"{name}_kernel", add("Concat", x, hidden, axis=1), weights.kernel)
        bias = weights.bias.reshape(4, -1) + np.array([[0], [0], [1], [0]], np.float32)
        gates = add("Add", gates, writer.constant(f"{name}_bias", bias.reshape(-1)))
        sizes = writer.constant(f"{name}_sizes", np.full(4, cell.dim, np.int64))
        i, j, f, o = writer.add_node("Split", [gates, sizes], 4, axis=1)
        kept = add("Mul", add("Sigmoid", f), old)
        added = add("Mul", add("Sigmoid", i), add("Tanh", j))
        new = self._clipped(f"{name}_clip", add("Add", kept, added), cell.cell_clip)
        hidden = add("Mul", add("Sigmoid", o), add("Tanh", new))
        if weights.projection is not None:
            hidden = self._product(f"{name}_projection", hidden, weights.projection)
            hidden = self._clipped(f"{name}_projection_clip", hidden, cell.proj_clip)
        return [new, hidden]

    def _product(self, name: str, x: str, weight: Int8Matrix) -> str:
        """Add the product of a float32 (B, K) with a weight; return the name of the result."""
        writer, add = self._step_writer, self._step_writer.add
        largest = add("ReduceMax", add("Abs", x), axes=[1], keepdims=1)
        scale = add("Mul", largest, writer.constant("unit", np.float32(1 / self._levels)))
        scale = add("Max", scale, writer.constant("tiny", TINY))  # B, 1
        scales = add("Squeeze", scale, writer.constant("features", np.array([1])))
        integers = add("QuantizeLinear", x, scales, "zero_points", axis=0)
        return add("Mul", writer.integer_product(integers, name, weight, self._levels), scale)

    def _clipped(self, name: str, x: str, bound: float | None) -> str:
        if not bound:
            return x
        writer = self._step_writer
        limits = (("low", -bound), ("high", bound))
        names = [writer.constant(f"{name}_{kind}", np.float32(value)) for kind, value in limits]
        return writer.add("Clip", x, *names)
