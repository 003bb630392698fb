"""`LSTM` on TensorFlow compared with `LSTMCell`: values and gradients, for each option."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bilm.errors import WeightsError
from bilm.layers.lstm import LSTM, LSTMCell, scan_cell
from bilm.layers.lstm_equation import LSTMState
from bilm.layers.tensorflow import lstm as lstm_inference
from bilm.layers.tensorflow import lstm_training

STEPS, ROWS, INPUT, DIM, PROJECTION = 4, 4, 5, 64, 3
CASES = [
    dict(),
    dict(cell_clip=0.1, proj_clip=0.02),
    dict(projection_dim=DIM, cell_clip=0.2),
    dict(reverse=True),
    dict(masked=True),
    dict(masked=True, reverse=True, cell_clip=0.15, proj_clip=0.03),
]


def ids(case):
    return "-".join(f"{k}={v}" for k, v in case.items()) or "plain"


@pytest.fixture(params=CASES, ids=ids)
def case(request):
    options = dict(request.param)
    reverse, masked = options.pop("reverse", False), options.pop("masked", False)
    options.setdefault("projection_dim", PROJECTION)
    rng = np.random.default_rng(3)
    layer = LSTM(LSTMCell(DIM, **options))
    layer.build((None, None, INPUT))
    layer.cell.bias.assign(rng.normal(size=4 * DIM))

    def draw(*shape):
        return tf.constant(rng.normal(size=shape, scale=0.5), tf.float32)

    x = draw(STEPS, ROWS, INPUT)
    state = LSTMState(draw(ROWS, DIM), draw(ROWS, options["projection_dim"]))
    mask = np.arange(STEPS)[:, None] < np.array([4, 3, 1, 0])[None, :]
    return layer, x, state, ops.convert_to_tensor(mask) if masked else None, reverse


@pytest.fixture(params=[True, False], ids=["joint", "lifted"])
def products(request, monkeypatch):
    """Both ways to compute gates: one product [x, h] W per step, or x W_x for all steps."""
    for module in (lstm_inference, lstm_training):
        monkeypatch.setattr(module, "MAX_JOINT", 512 if request.param else 0)


def frozen_copy(layer, precision="float32"):
    """A frozen layer of the same weights."""
    cell = layer.cell
    copy = LSTM(LSTMCell(cell.dim, cell.projection_dim, *cell.clips, precision=precision))
    for variable in layer.cell.weights:
        initializer = keras.initializers.Constant(variable.numpy())
        copy.cell.initial[variable.name] = initializer
    copy.cell.frozen = True
    copy.build((None, None, INPUT))
    return copy


def by_the_cell(layer, x, state, mask, reverse):
    """Call the cell once per step."""
    steps = range(STEPS - 1, -1, -1) if reverse else range(STEPS)
    outputs = [None] * STEPS
    for t in steps:
        new = layer.cell(x[t], state)
        if mask is not None:
            keep = mask[t][:, None]
            new = LSTMState(*(tf.where(keep, n, old) for n, old in zip(new, state, strict=True)))
        outputs[t], state = new.hidden, new
    return tf.stack(outputs), state


def values_and_gradients(run, layer, x, state):
    """Return the outputs and the gradient of a weighted sum of outputs and states."""
    variables = [v.value for v in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch([x, *state])
        outputs, last = run()
        weights = tf.reshape(tf.range(tf.size(outputs), dtype=tf.float32), outputs.shape)
        total = tf.reduce_sum(outputs * tf.sin(weights))
        total += tf.reduce_sum(tf.square(last.cell)) + 2.0 * tf.reduce_sum(last.hidden)
    return [outputs, *last], tape.gradient(total, [x, *state, *variables])


TRAINING = [
    (True, "unrolled"), (False, "while_loop"), (False, "shared steps"),
    *(
        pytest.param(is_joint, driver, marks=pytest.mark.slow)
        for is_joint, driver in (
            (True, "eager"), (False, "eager"), (False, "unrolled"), (True, "while_loop"),
            (True, "shared steps"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("products", "driver"), TRAINING, indirect=["products"])
def test_lstm_training_equals_the_cell(case, products, driver, monkeypatch):
    layer, x, state, mask, reverse = case
    if driver == "shared steps":
        monkeypatch.setattr("bilm.layers.tensorflow.lstm_training.MIN_SHARED", 1)

    def fast(x):
        return layer(x, state, steps_mask=mask, reverse=reverse, training=True)

    if driver != "eager":
        shape = (None, ROWS, INPUT) if driver == "while_loop" else x.shape
        fast = tf.function(fast, input_signature=[tf.TensorSpec(shape)])
    expected = values_and_gradients(lambda: by_the_cell(*case), layer, x, state)
    found = values_and_gradients(lambda: fast(x), layer, x, state)
    for e, f in zip(expected[0], found[0], strict=True):
        np.testing.assert_allclose(f, e, atol=1e-6)
    for e, f in zip(expected[1], found[1], strict=True):
        np.testing.assert_allclose(f, e, atol=1e-5)


@pytest.mark.parametrize("case", CASES[:1], indirect=True)
@pytest.mark.parametrize(("gpus", "n_calls"), [([], STEPS), (["GPU:0"], 0)])
def test_steps_of_a_large_cell_are_calls_on_a_cpu_alone(case, gpus, n_calls, monkeypatch):
    monkeypatch.setattr("bilm.layers.tensorflow.lstm_training.MIN_SHARED", 1)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    layer, x, state, *_ = case
    run = tf.function(lambda: layer(x, state, training=True))
    operations = run.get_concrete_function().graph.get_operations()
    assert sum("PartitionedCall" in operation.type for operation in operations) == n_calls


@pytest.mark.usefixtures("products")
def test_lstm_inference_and_scan_equal_the_cell(case):
    layer, x, state, mask, reverse = case
    expected, last = by_the_cell(*case)
    for outputs, final in (
        layer(x, state, steps_mask=mask, reverse=reverse),
        scan_cell(layer.cell, x, state, mask, reverse),
    ):
        np.testing.assert_allclose(outputs, expected, atol=1e-6)
        np.testing.assert_allclose(final.cell, last.cell, atol=1e-6)
        np.testing.assert_allclose(final.hidden, last.hidden, atol=1e-6)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    "precision, atol, n_rows",
    [
        ("float32", 1e-6, None),
        ("bfloat16", 0.01, 1),
        pytest.param("float32", 1e-6, 1, marks=pytest.mark.slow),
        pytest.param("bfloat16", 0.01, None, marks=pytest.mark.slow),
    ],
)
def test_frozen_lstm_equals_the_cell(case, precision, atol, n_rows):
    layer, x, state, mask, reverse = case
    if n_rows:  # products of one row may differ from those of several
        x, state = x[:, :1], LSTMState(*(part[:1] for part in state))
        mask = None if mask is None else mask[:, :1]
    expected, last = by_the_cell(layer, x, state, mask, reverse)
    frozen = frozen_copy(layer, precision)

    @tf.function(input_signature=[tf.TensorSpec((None, n_rows, INPUT))])
    def run(x):
        return frozen(x, state, steps_mask=mask, reverse=reverse)

    outputs, final = run(x)
    assert not frozen.variables
    with pytest.raises(WeightsError, match="frozen for inference; load it again without"):
        frozen.cell.own_weight("kernel")
    for found, wanted in zip((outputs, *final), (expected, *last), strict=True):
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, wanted, atol=atol, rtol=atol)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("frozen", [False, True])
def test_lstm_fresh_rows_start_from_zero_state(case, frozen):
    layer, x, state, _, _ = case
    fast = frozen_copy(layer) if frozen else layer
    fresh = np.zeros((STEPS, ROWS), bool)
    fresh[2, [0, 3]] = True
    expected, _ = by_the_cell(layer, x, state, None, False)
    zeros = LSTMState(*(tf.zeros_like(part) for part in state))
    afresh = np.stack([layer.cell(x[2], zeros).hidden])
    for outputs, _ in (
        fast(x, state, fresh=ops.convert_to_tensor(fresh)),
        scan_cell(layer.cell, x, state, None, False, ops.convert_to_tensor(fresh)),
    ):
        np.testing.assert_allclose(outputs[:2], expected[:2], atol=1e-6)
        np.testing.assert_allclose(outputs[:, 1:3], expected[:, 1:3], atol=1e-6)
        np.testing.assert_allclose(outputs[2:3, ::3], afresh[:, ::3], atol=1e-6)
