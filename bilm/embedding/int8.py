"""The LSTM stacks of a biLM with products of eight-bit integers, which ONNX Runtime computes.

A direction is one ONNX graph, a `Scan` over steps. Weights have one scale per column, which is
fixed. Inputs of products, which are signed, have one scale per row and step, 1/127 of the row's
largest absolute value, so that a row does not depend on other rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from keras import ops

from bilm.language_model import BiLM
from bilm.layers.int8_weights import Int8Cell, Int8Matrix
from bilm.layers.stack import LSTMStack
from bilm.support.imports import needed

OPSET = 17
IR_VERSION = 9  # of ONNX 1.14; older runtimes can read it
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations
ZERO_POINT = 128  # unsigned inputs: ONNX Runtime has no fast product of two signed matrices
TINY = np.float32(1e-30)  # the smallest scale, for rows of zeros


class Int8Stacks:
    """Runs the stacks of a biLM in eight bits, a window of steps at a time.

    The cells' states, gates, clips and sums are float32.

    Args:
        model: a frozen, built biLM with `precision` "int8". The weights of its stacks move here.
    Raises: MissingExtraError without the packages of the extra `onnx`.
    """

    def __init__(self, model: BiLM):
        self._n_layers = model.options.lstm.n_layers
        n_threads = max((os.cpu_count() or 1) // len(model.directions), 1)
        self._sessions = {d: _session(model.stacks[d], n_threads) for d in model.directions}
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


def _going_on(fresh: Any) -> np.ndarray:
    """Return the factors of states: boolean (B, T) -> float32 (T, B, 1), 0 for a fresh row."""
    return np.where(ops.convert_to_numpy(fresh).T, np.float32(0), np.float32(1))[:, :, None]


def _session(stack: LSTMStack, n_threads: int) -> Any:
    """Return an `onnxruntime.InferenceSession` of a stack, which loses its weights."""
    with needed("onnx", "precision int8"):
        import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = n_threads, 1
    settings.log_severity_level = 3
    # Between runs, waiting threads must not use the processor, which other libraries need.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    graph = _StackGraph(stack).serialized()
    return onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])


class _StackGraph:
    """Writes the ONNX graph of a stack.

    Inputs: `state_0`, ..., by layer, cell before hidden, float32 (B, D) and (B, P); `vectors`,
    float32 (T, B, P); `going_on`, float32 (T, B, 1).
    Outputs: the last state; for each layer float32 (T, B, P).
    """

    def __init__(self, stack: LSTMStack):
        with needed("onnx", "precision int8"):
            import onnx
        self._onnx = onnx
        self._stack = stack
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def serialized(self) -> bytes:
        """Return the model, a serialized `onnx.ModelProto`."""
        helper = self._onnx.helper
        widths = [w for _ in self._stack.layers for w in (self._stack.dim, self._width)]
        state = [f"state_{i}" for i in range(len(widths))]
        last, outputs = [f"last_{name}" for name in state], self._named("layer")
        body = self._body([f"old_{name}" for name in state], widths)
        scan = helper.make_node(
            "Scan", [*state, "vectors", "going_on"], [*last, *outputs], body=body, num_scan_inputs=2
        )
        inputs = [self._value(name, "B", w) for name, w in zip(state, widths, strict=True)]
        inputs += [self._value("vectors", "T", "B", self._width)]
        inputs += [self._value("going_on", "T", "B", 1)]
        results = [self._value(name, "B", w) for name, w in zip(last, widths, strict=True)]
        results += [self._value(name, "T", "B", self._width) for name in outputs]
        graph = helper.make_graph([scan], "stack", inputs, results, self._constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        return model.SerializeToString()

    @property
    def _width(self) -> int:
        return self._stack.projection_dim

    def _named(self, kind: str) -> list[str]:
        return [f"{kind}_{i}" for i in range(len(self._stack.layers))]

    def _body(self, names: list[str], widths: list[int]) -> Any:
        """Return the graph of one step."""
        x, state, outputs = "x", [], []
        for k, layer in enumerate(self._stack.layers):
            cell, hidden = names[2 * k : 2 * k + 2]
            new = self._step(f"cell_{k}", layer.cell, x, cell, hidden)
            state += new
            x = self._add("Add", new[1], x) if k and self._stack.use_skip_connections else new[1]
            outputs.append(x)
        # An output of the body must not be used twice.
        state, outputs = ([self._add("Identity", n) for n in part] for part in (state, outputs))
        inputs = [self._value(name, "B", w) for name, w in zip(names, widths, strict=True)]
        inputs += [self._value("x", "B", self._width), self._value("keep", "B", 1)]
        results = [self._value(name, "B", w) for name, w in zip(state, widths, strict=True)]
        results += [self._value(name, "B", self._width) for name in outputs]
        return self._onnx.helper.make_graph(self._nodes, "step", inputs, results)

    def _step(self, name: str, cell: Any, x: str, old_cell: str, old_hidden: str) -> list[str]:
        """Add a step of an `LSTMCell`, whose weights are removed; return the new state's names."""
        weights: Int8Cell = cell.laid_out
        cell.laid_out = None
        old, hidden = (self._add("Mul", part, "keep") for part in (old_cell, old_hidden))
        bias = weights.bias.reshape(4, -1) + np.array([[0], [0], [1], [0]], np.float32)
        both = self._add("Concat", x, hidden, axis=1)
        gates = self._product(f"{name}_kernel", both, weights.kernel)
        gates = self._add("Add", gates, self._constant(f"{name}_bias", bias.reshape(-1)))
        sizes = self._constant(f"{name}_sizes", np.full(4, cell.dim, np.int64))
        i, j, f, o = self._add_all("Split", [gates, sizes], 4, axis=1)
        kept = self._add("Mul", self._add("Sigmoid", f), old)
        added = self._add("Mul", self._add("Sigmoid", i), self._add("Tanh", j))
        new = self._clipped(f"{name}_clip", self._add("Add", kept, added), cell.cell_clip)
        hidden = self._add("Mul", self._add("Sigmoid", o), self._add("Tanh", new))
        if weights.projection is not None:
            hidden = self._product(f"{name}_projection", hidden, weights.projection)
            hidden = self._clipped(f"{name}_projection_clip", hidden, cell.proj_clip)
        return [new, hidden]

    def _product(self, name: str, x: str, weight: Int8Matrix) -> str:
        """Add the product of a float32 (B, K) with a weight; return the name of the result."""
        largest = self._add("ReduceMax", self._add("Abs", x), axes=[1], keepdims=1)
        scale = self._add("Mul", largest, self._constant("unit", np.float32(1 / 127)))
        scale = self._add("Max", scale, self._constant("tiny", TINY))
        rounded = self._add("Round", self._add("Div", x, scale))
        shifted = self._add("Add", rounded, self._constant("shift", np.float32(ZERO_POINT)))
        integers = self._add("Cast", shifted, to=self._onnx.TensorProto.UINT8)
        result = self._add(
            "MatMulIntegerToFloat",
            integers,
            self._constant(f"{name}_values", weight.values),
            self._constant("one", np.float32(1)),
            self._constant(f"{name}_scales", weight.scales),
            self._constant("zero_point", np.uint8(ZERO_POINT)),
            domain=MICROSOFT,
        )
        return self._add("Mul", result, scale)

    def _clipped(self, name: str, x: str, bound: float | None) -> str:
        if not bound:
            return x
        limits = {"low": -bound, "high": bound}
        return self._add(
            "Clip", x, *(self._constant(f"{name}_{k}", np.float32(v)) for k, v in limits.items())
        )

    def _constant(self, name: str, value: Any) -> str:
        """Add a constant unless one has this name; return the name."""
        if all(known.name != name for known in self._constants):
            array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
            self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        return self._add_all(kind, list(inputs), 1, domain, **attributes)[0]

    def _add_all(
        self, kind: str, inputs: list[str], n_outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        outputs = [f"v{len(self._nodes)}_{k}" for k in range(n_outputs)]
        make = self._onnx.helper.make_node
        self._nodes.append(make(kind, inputs, outputs, domain=domain, **attributes))
        return outputs

    def _value(self, name: str, *shape: str | int) -> Any:
        kind = self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)
