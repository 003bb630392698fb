"""Everything that computes a step of an LSTM cell gives the same numbers as the equation itself.

`test_lstm` and `test_lstm_torch` compare several steps, gradients and layouts with the cell.
"""

from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from bilm.inference.backend import Window
from bilm.inference.numpy import NumpyStacks
from bilm.inference.onnx_int8 import library_of
from bilm.layers.lstm import LSTM, LSTMCell
from bilm.layers.lstm_equation import LSTMState, forget_bias, next_state
from bilm.layers.onnx_graph import GraphWriter
from bilm.options.model_options import ModelOptions

ROWS, UNITS, WIDTH = 3, 8, 5
CLIPS = {"no clips": (None, None), "both clips bind": (0.3, 0.1)}


class Case(NamedTuple):
    """A cell with its weights, an input and a state, as float32 arrays of NumPy."""

    cell_clip: float | None
    proj_clip: float | None
    kernel: np.ndarray
    bias: np.ndarray
    projection: np.ndarray | None
    x: np.ndarray
    old: LSTMState


@pytest.fixture(params=["projection", "no projection"])
def width(request):
    return WIDTH if request.param == "projection" else UNITS


@pytest.fixture(params=CLIPS)
def case(request, width):
    random = np.random.default_rng(0)

    def draw(*shape):
        return random.normal(size=shape, scale=0.6).astype(np.float32)

    kernel, bias = draw(2 * width, 4 * UNITS), draw(4 * UNITS)
    projection = draw(UNITS, width) if width != UNITS else None
    state = LSTMState(draw(ROWS, UNITS), draw(ROWS, width))
    return Case(*CLIPS[request.param], kernel, bias, projection, draw(ROWS, width), state)


def written_out(case):
    """The equation in float64, from the definition."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    x, old_cell, old_hidden = (a.astype(np.float64) for a in (case.x, *case.old))
    gates = np.concatenate([x, old_hidden], axis=1) @ case.kernel + case.bias
    i, j, f, o = np.split(gates, 4, axis=1)
    cell = sigmoid(f + 1) * old_cell + sigmoid(i) * np.tanh(j)
    if case.cell_clip:
        cell = np.clip(cell, -case.cell_clip, case.cell_clip)
    hidden = sigmoid(o) * np.tanh(cell)
    if case.projection is not None:
        hidden = hidden @ case.projection
        if case.proj_clip:
            hidden = np.clip(hidden, -case.proj_clip, case.proj_clip)
    return LSTMState(cell, hidden)


# --- what computes a step: functions from a case to the new state ---


def make_cell(case):
    cell = LSTMCell(UNITS, len(case.old.hidden.T), case.cell_clip, case.proj_clip)
    weights = {"kernel": case.kernel, "bias": case.bias, "projection": case.projection}
    for name, value in weights.items():
        if value is not None:
            cell.initial[name] = keras.initializers.Constant(value)
    return cell


def cell_of_keras(case):
    cell = make_cell(case)
    cell.build((None, case.x.shape[1]))
    return cell(*tensors(case))


def layer(case):
    lstm = LSTM(make_cell(case))
    lstm.build((None, None, case.x.shape[1]))
    x, state = tensors(case)
    outputs, last = lstm(x[None], state)
    np.testing.assert_array_equal(ops.convert_to_numpy(outputs)[0], ops.convert_to_numpy(last[1]))
    return last


def tensors(case):
    return ops.convert_to_tensor(case.x), LSTMState(*map(ops.convert_to_tensor, case.old))


def backend_numpy(case):
    """The stack of the backend, run from the given state."""
    lstm = {
        "dim": UNITS, "projection_dim": len(case.old.hidden.T), "n_layers": 1,
        "cell_clip": case.cell_clip, "proj_clip": case.proj_clip, "use_skip_connections": False,
    }  # fmt: skip
    options = ModelOptions.from_dict({"bidirectional": False, "lstm": lstm})
    stored = {"W_0": case.kernel, "B": case.bias, "W_P_0": case.projection}
    stacks = NumpyStacks(options, lambda name: stored[name.rsplit("/", 1)[1]])
    places = {"forward": np.arange(ROWS)[:, None]}
    starts = np.zeros((ROWS, 1), bool)
    _, last = stacks.run_window(case.x, Window(places, starts), list(case.old))
    return LSTMState(*last)


def onnx_graph(case):
    """The equation as nodes of a graph, with products of float32."""
    import onnxruntime

    graph = GraphWriter()
    inputs = {"x": case.x, "cell": case.old.cell, "hidden": case.old.hidden}
    x, *old = (graph.input(name, *array.shape) for name, array in inputs.items())
    library = library_of(graph, partial(graph.add, "MatMul"))

    kernels = np.split(case.kernel, 4, axis=1)
    biases = np.split(case.bias + forget_bias(UNITS), 4)
    read = graph.concat([x, old[1]], axis=1)
    gates = []
    for k, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        product = library.matmul(read, graph.constant(f"kernel_{k}", kernel))
        gates.append(product + graph.constant(f"bias_{k}", bias))
    projection = case.projection
    if projection is not None:
        projection = graph.constant("projection", projection)
    clips = case.cell_clip, case.proj_clip
    new = next_state(library, gates, LSTMState(*old), projection, clips)

    graph.output(*new.state)
    session = onnxruntime.InferenceSession(graph.model("cell"))
    return LSTMState(*session.run(None, inputs))


needs_onnx = pytest.mark.skipif(
    find_spec("onnx") is None or find_spec("onnxruntime") is None,
    reason="needs the extra onnx: make test-clients",
)
USERS = [
    pytest.param(cell_of_keras, id="LSTMCell"),
    pytest.param(layer, id="LSTM"),
    pytest.param(backend_numpy, id="backend numpy"),
    pytest.param(onnx_graph, id="ONNX graph", marks=needs_onnx),
]


@needs_onnx
def test_values_of_an_onnx_graph_support_arithmetic_with_numbers():
    import onnxruntime

    graph = GraphWriter()
    x = graph.input("x", 2)
    graph.output(x - 1, x * 2 + 0.5, x * x + 0.5)
    found = onnxruntime.InferenceSession(graph.model("m")).run(None, {"x": np.float32([3, 4])})
    np.testing.assert_array_equal(found, [[2, 3], [6.5, 8.5], [9.5, 16.5]])


@pytest.mark.parametrize("user", USERS)
def test_golden_step_equals_the_equation(user, case):
    expected = written_out(case)
    for result, wanted in zip(user(case), expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(result), wanted, atol=2e-6)
    if case.cell_clip:
        assert np.abs(expected.cell).max() == case.cell_clip
