"""Every layer: its equation on small numbers, and a configuration that makes it again."""

import keras
import numpy as np
import pytest
from keras import ops

from bilm.layers.char_cnn import CharacterCNN
from bilm.layers.highway import Highway
from bilm.layers.lstm import LSTM, LSTMCell
from bilm.layers.sampled_softmax import Negatives, SampledSoftmax
from bilm.layers.scalar_mix import ScalarMix
from bilm.layers.token_encoder import TokenEncoder, WordEncoder


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "layer",
    [
        CharacterCNN(9, 3, [(1, 2), (2, 4)], "tanh"),
        Highway(2),
        TokenEncoder(5, 9, 3, [(1, 2), (2, 4)], "relu", 1),
        WordEncoder(5, 9),
        LSTMCell(4, 3, 1.0, 2.0),
        LSTM(4, 3, 1.0, 2.0),
        SampledSoftmax(7, 3),
        ScalarMix(True, 0.5),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_configuration_makes_the_layer_again(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config


def test_character_cnn_is_the_largest_window():
    layer = CharacterCNN(6, 2, [(2, 3)])
    layer.build()
    ids = np.array([[0, 3, 5, 1], [2, 2, 2, 2]])
    table, kernel = layer.embedding.numpy(), layer.kernels[0].numpy()[0]
    layer.biases[0].assign([0.1, -0.2, 0.3])
    windows = [
        [np.einsum("ce,cef->f", table[row[i : i + 2]], kernel) for i in range(3)] for row in ids
    ]
    expected = np.maximum(np.max(windows, axis=1) + [0.1, -0.2, 0.3], 0)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(ids)), expected, atol=1e-6)


def test_character_cnn_refuses_an_activation():
    with pytest.raises(ValueError, match="'gelu'"):
        CharacterCNN(6, 2, [(2, 3)], "gelu")


def test_highway_with_shut_gates_passes_its_input():
    layer = Highway(2)
    layer.build((None, 3))
    for bias in layer.gate_biases:
        bias.assign([-50.0] * 3)
    x = numbers(4, 3)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), x, atol=1e-6)
    with pytest.raises(ValueError, match="last axis"):
        Highway(1).build((3, None))


def test_full_loss_is_a_log_softmax(monkeypatch):
    layer = SampledSoftmax(11, 3)
    layer.build()
    hidden, targets = numbers(5, 3), np.array([0, 3, 3, 10, 7])
    logits = hidden @ layer.kernel.numpy().T + layer.bias.numpy()
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(5), targets]
    whole = ops.convert_to_numpy(layer(hidden, targets))
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    monkeypatch.setattr("bilm.layers.sampled_softmax.VOCABULARY_CHUNK", 4)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(hidden, targets)), whole, rtol=1e-5)


def test_sampled_loss_with_every_word_is_the_full_one():
    """All words drawn, expected once each: only the target itself is an accidental hit."""
    layer = SampledSoftmax(6, 3)
    layer.build()
    hidden, targets = numbers(4, 3), np.array([0, 5, 2, 2], dtype=np.int32)
    draws = Negatives(np.arange(6, dtype=np.int32), np.ones(6, np.float32), np.ones(4, np.float32))
    sampled = ops.convert_to_numpy(layer(hidden, targets, draws))
    np.testing.assert_allclose(sampled, ops.convert_to_numpy(layer(hidden, targets)), rtol=1e-5)


def test_mix_starts_as_the_mean_and_ignores_padding():
    layers, mask = numbers(2, 3, 4, 5), np.arange(4) < np.array([[4], [2]])
    mix = ScalarMix()
    np.testing.assert_allclose(
        ops.convert_to_numpy(mix(layers, mask=mask)), layers.mean(1), atol=1e-6
    )
    normalized = ScalarMix(do_layer_norm=True)
    before = ops.convert_to_numpy(normalized(layers, mask=mask))
    layers[1, :, 2:] = 1e3
    after = ops.convert_to_numpy(normalized(layers, mask=mask))
    np.testing.assert_allclose(before[mask], after[mask], atol=1e-5)


def test_gradient_of_a_gathered_table_is_sparse():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("sparse gradients are TensorFlow's")
    import tensorflow as tf

    layer = SampledSoftmax(50, 3)
    layer.build()
    draws = Negatives(np.array([4, 9]), np.ones(2, np.float32), np.ones(2, np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(numbers(2, 3), np.array([1, 4]), draws))
    gradient = tape.gradient(loss, layer.kernel.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert set(gradient.indices.numpy()) == {1, 4, 9}
