"""One suite for all layers: shapes, graph modes, types, training, freezing, masks, serialization.

Golden numbers of the layers are in tests/compat/test_bilm_tf.py and tests/elmo.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from bilm.activations import ACTIVATIONS
from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.functional import product
from bilm.layers.lstm import LSTM, LSTMCell
from bilm.layers.lstm_equation import LSTMState
from bilm.layers.sampled_softmax import Negatives, SampledSoftmax
from bilm.layers.scalar_mix import ScalarMix
from bilm.layers.stack import LSTMStack
from bilm.layers.token_encoder import Highway, TokenEncoder, WordEncoder

if TENSORFLOW := keras.backend.backend() == "tensorflow":
    import tensorflow as tf

N_STEPS, N_ROWS, N_CHARS, WIDTH, UNITS = 5, 3, 9, 4, 6
FILTERS = [(1, 2), (3, 5)]


def numbers(*shape, seed=0):
    return ops.convert_to_tensor(np.random.default_rng(seed).normal(size=shape), "float32")


def ids(*shape, below, seed=0):
    drawn = np.random.default_rng(seed).integers(1, below, size=shape)
    return ops.convert_to_tensor(drawn, "int32")


def states(n_layers=1, projection_dim=WIDTH):
    made = [LSTMState(numbers(N_ROWS, UNITS), numbers(N_ROWS, projection_dim))] * n_layers
    return made[0] if n_layers == 1 else made


class Case(NamedTuple):
    """A layer and its inputs.

    Fields:
        make: makes the layer, from `dtype` and, if `has_precision`, `precision`.
        inputs: makes the arguments of its call.
        shape: of its output, or of the first of several.
        build: the argument of its `build`.
    """

    make: Callable[..., Any]
    inputs: Callable[[], tuple]
    shape: tuple[int, ...]
    build: Any = None
    has_precision: bool = True


def negatives():
    draws = ops.convert_to_tensor([1, 4, 6], "int32")
    return Negatives(draws, ops.ones(3) * 0.5, ops.ones(N_ROWS) * 0.3)


def encoder(words=None, **kwargs):
    cnn = CharacterCNN(20, 3, FILTERS, **kwargs)
    return TokenEncoder(WIDTH, cnn, Highway(1, **kwargs), words, **kwargs)


WORDS = {"words": (11, 2)}
VECTORS = (None, None, WIDTH)
CASES = {
    **{
        f"CharacterCNN, {name}": Case(
            lambda name=name, **kwargs: CharacterCNN(20, 3, FILTERS, name, **kwargs),
            lambda: (ids(N_ROWS, 2, N_CHARS, below=20),),
            (N_ROWS, 2, 7),
        )
        for name in ACTIVATIONS
    },
    "Highway": Case(
        lambda **kwargs: Highway(2, **kwargs), lambda: (numbers(N_ROWS, 7),), (N_ROWS, 7), (None, 7)
    ),
    "TokenEncoder": Case(encoder, lambda: (ids(N_ROWS, N_CHARS, below=20),), (N_ROWS, WIDTH)),
    "TokenEncoder, with words": Case(
        lambda **kwargs: encoder(**WORDS, **kwargs),
        lambda: (ids(N_ROWS, 1 + N_CHARS, below=11),),
        (N_ROWS, WIDTH),
    ),
    "WordEncoder": Case(
        lambda **kwargs: WordEncoder(WIDTH, 11, **kwargs),
        lambda: (ids(N_ROWS, 2, below=11),),
        (N_ROWS, 2, WIDTH),
        has_precision=False,
    ),
    "LSTMCell": Case(
        lambda **kwargs: LSTMCell(UNITS, WIDTH, 1.0, 0.5, **kwargs),
        lambda: (numbers(N_ROWS, WIDTH), states()),
        (N_ROWS, UNITS),
        (None, WIDTH),
    ),
    "LSTM": Case(
        lambda **kwargs: LSTM(LSTMCell(UNITS, WIDTH, 1.0, 0.5, **kwargs)),
        lambda: (numbers(N_STEPS, N_ROWS, WIDTH), states()),
        (N_STEPS, N_ROWS, WIDTH),
        VECTORS,
    ),
    "LSTM, without projection": Case(
        lambda **kwargs: LSTM(LSTMCell(UNITS, UNITS, **kwargs)),
        lambda: (numbers(N_STEPS, N_ROWS, WIDTH), states(1, UNITS)),
        (N_STEPS, N_ROWS, UNITS),
        VECTORS,
    ),
    "LSTMStack": Case(
        lambda **kwargs: LSTMStack([LSTMCell(UNITS, WIDTH, **kwargs) for _ in range(2)], True),
        lambda: (numbers(N_STEPS, N_ROWS, WIDTH), states(2)),
        (N_STEPS, N_ROWS, WIDTH),
        VECTORS,
    ),
    "SampledSoftmax, full loss": Case(
        lambda **kwargs: SampledSoftmax(11, WIDTH, **kwargs),
        lambda: (numbers(N_ROWS, WIDTH), ids(N_ROWS, below=11)),
        (N_ROWS,),
        has_precision=False,
    ),
    "SampledSoftmax, sampled loss": Case(
        lambda **kwargs: SampledSoftmax(11, WIDTH, **kwargs),
        lambda: (numbers(N_ROWS, WIDTH), ids(N_ROWS, below=11), negatives()),
        (N_ROWS,),
    ),
    "ScalarMix": Case(
        lambda **kwargs: ScalarMix(True, 0.5, **kwargs),
        lambda: (numbers(N_ROWS, 3, N_STEPS, WIDTH),),
        (N_ROWS, N_STEPS, WIDTH),
        (None, 3, None, WIDTH),
        has_precision=False,
    ),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def built(case, **kwargs):
    """The layer of a case with random weights, the same each time."""
    layer = case.make(**kwargs)
    layer.build(case.build)
    for k, variable in enumerate(layer.variables):
        variable.assign(numbers(*variable.shape, seed=k) * 0.5)
    return layer


def arrays(result):
    return [ops.convert_to_numpy(tensor) for tensor in keras.tree.flatten(result)]


def assert_equal(found, expected, **tolerance):
    for a, b in zip(arrays(found), arrays(expected), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@cases
def test_layer_output_has_the_declared_shape_and_type(case):
    layer = built(case)
    outputs = arrays(layer(*case.inputs()))
    assert outputs[0].shape == case.shape
    assert all(output.dtype == np.float32 for output in outputs)


@pytest.mark.skipif(not TENSORFLOW, reason="tf.function is TensorFlow's")
@cases
def test_layer_in_a_graph_of_unknown_sizes_equals_the_eager_layer(case):
    """Except for the width of vectors and of spelled tokens."""
    layer, inputs = built(case), case.inputs()
    widths = (UNITS, WIDTH, 7, N_CHARS, 1 + N_CHARS)

    def spec(tensor):
        last = tensor.shape[-1] if tensor.shape[-1] in widths else None
        return tf.TensorSpec([*[None] * (len(tensor.shape) - 1), last], tensor.dtype)

    signature = keras.tree.map_structure(spec, inputs)
    assert_equal(tf.function(layer, signature)(*inputs), layer(*inputs), atol=1e-6)


@cases
def test_layer_has_float32_weights_under_a_mixed_policy(case):
    """The biLM requests float32 layers; a layer made by itself follows the policy of Keras."""
    layer = case.make(dtype="mixed_bfloat16")
    layer.build(case.build)
    assert all(variable.dtype == "float32" for variable in layer.variables)
    assert layer.compute_dtype == "bfloat16"


@cases
def test_layer_in_bfloat16_precision_is_near_float32(case):
    if not case.has_precision:
        pytest.skip("computes in float32 only")
    expected = arrays(built(case)(*case.inputs()))
    found = arrays(built(case, precision="bfloat16")(*case.inputs()))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, atol=0.05, rtol=0.02)
    assert any((a != b).any() for a, b in zip(found, expected, strict=True))


@pytest.mark.skipif(not TENSORFLOW, reason="training is TensorFlow's")
@cases
def test_layer_learns_in_a_training_step(case):
    layer, inputs = built(case), case.inputs()
    how = {"training": True} if isinstance(layer, LSTM | LSTMStack) else {}

    def loss():
        outputs = keras.tree.flatten(layer(*inputs, **how))
        return sum(tf.reduce_mean(tf.square(output - 0.1)) for output in outputs)

    with tf.GradientTape() as tape:
        before = loss()
    variables = layer.trainable_variables
    gradients = tape.gradient(before, [variable.value for variable in variables])
    assert variables and all(gradient is not None for gradient in gradients)
    for variable, gradient in zip(variables, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient)
        assert np.isfinite(gradient).all()
        variable.assign_sub(1e-3 * gradient)
    assert loss() < before


def test_full_loss_does_not_depend_on_the_slices_of_the_vocabulary(monkeypatch):
    layer, targets = built(CASES["SampledSoftmax, full loss"]), [0, 3, 3, 10, 7]
    inputs = numbers(5, WIDTH), ops.convert_to_tensor(targets, "int32")
    whole = layer(*inputs)
    monkeypatch.setattr("bilm.layers.sampled_softmax.VOCABULARY_CHUNK", 4)
    assert_equal(layer(*inputs), whole, rtol=1e-5)


def test_sampled_loss_over_all_words_equals_the_full_loss():
    """With each word expected once; the target itself is ignored among the negatives."""
    layer = built(CASES["SampledSoftmax, full loss"])
    hidden, targets = numbers(4, WIDTH), ops.convert_to_tensor([0, 5, 2, 2], "int32")
    draws = Negatives(ops.arange(11, dtype="int32"), ops.ones(11), ops.ones(4))
    assert_equal(layer(hidden, targets, draws), layer(hidden, targets), rtol=1e-5)


@pytest.mark.skipif(not TENSORFLOW, reason="sparse gradients are TensorFlow's")
def test_sampled_loss_has_a_gradient_for_the_rows_used_only():
    layer = built(CASES["SampledSoftmax, full loss"])
    draws = Negatives(np.array([4, 9]), np.ones(2, np.float32), np.ones(2, np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(numbers(2, WIDTH), np.array([1, 4]), draws))
    gradient = tape.gradient(loss, layer.kernel.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert set(gradient.indices.numpy()) == {1, 4, 9}


def test_product_rounds_its_inputs_only():
    x = np.full((1, 2), 1.0 + 2.0**-12, np.float32)
    assert float(product(x, np.ones((2, 1), np.float32))[0, 0]) == 2.0 + 2.0**-11
    assert float(product(x, np.ones((2, 1), np.float32), "bfloat16")[0, 0]) == 2.0
