"""Variational dropout, embedding dropout and weight decay in training."""

import keras
import numpy as np
import pytest
from tiny_runs import WORDS, run, tiny_options, weights_of

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm.language_model import BiLM
from bilm.layers.functional import dropout
from bilm.layers.stack import LSTMStack
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS

REGULARIZED = WORDS | {
    "variational_dropout": True,
    "embedding_dropout": 0.3,
    "weight_decay": 0.1,
    "dropout": 0.3,
    "optimizer": "adam",
}


@pytest.mark.parametrize("n_replicas", [1, 2])
def test_resume_with_all_regularization_is_bit_identical(tmp_path, n_replicas):
    run(tmp_path / "straight", 4, changes=REGULARIZED, n_replicas=n_replicas)
    for n_steps in (2, 4):
        run(tmp_path / "resumed", n_steps, changes=REGULARIZED, n_replicas=n_replicas)
    found = weights_of(tmp_path / "resumed")
    for name, value in weights_of(tmp_path / "straight").items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_dropout_shares_its_mask_along_an_axis():
    x = np.ones((7, 3, 50), "float32")
    dropped = np.array(dropout(x, 0.5, tf.constant([1, 2]), shared_axis=0))
    assert (dropped == dropped[:1]).all()
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert (dropped[:, 0] != dropped[:, 1]).any()  # rows have their own masks
    per_step = np.array(dropout(x, 0.5, tf.constant([1, 2])))
    assert (per_step != per_step[:1]).any()


@pytest.mark.parametrize("variational", [False, True])
def test_variational_dropout_of_the_output_is_constant_over_a_window(variational):
    stack = LSTMStack(2, 16, 8, dropout=0.5, variational_dropout=variational)
    stack.build((None, None, 8))
    x = np.random.default_rng(0).normal(size=(6, 4, 8)).astype("float32")
    seed = tf.constant([3, 4])
    outputs, _ = stack(x, stack.zero_state(4), dropout_seed=seed, training=True)
    is_zero = np.array(outputs[-1]) == 0
    assert 0 < is_zero.mean() < 1
    assert (is_zero == is_zero[:1]).all() == variational


def test_embedding_dropout_drops_tokens_at_all_positions():
    options = tiny_options(char_cnn=None)
    model = BiLM(options.model, 100, embedding_dropout=0.5)
    model.build()
    places = np.arange(100, dtype="int32").reshape(2, 50) % 40
    batch = {
        "distinct": tf.range(40),
        "places": {"forward": tf.constant(places), "backward": tf.constant(places[:, ::-1])},
    }
    plain = {d: np.array(v) for d, v in model.encode(batch).items()}
    found = {d: np.array(v) for d, v in model.encode(batch, tf.constant([5, 6])).items()}
    dropped = set(places[(found["forward"] == 0).all(-1)].tolist())
    assert 0 < len(dropped) < 40
    for direction, ids in (("forward", places), ("backward", places[:, ::-1])):
        kept = ~np.isin(ids, list(dropped))[..., None]
        np.testing.assert_allclose(found[direction], plain[direction] * kept * 2, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(5, 3), (5,)], ids=["table", "bias"])
def test_weight_decay_is_decoupled_from_the_gradient(optimizer, sparse, shape):
    """The change beyond that without decay is a part of the weights before the step."""
    start = np.random.default_rng(0).normal(size=shape).astype("float32")
    rows = np.array([3, 1])
    slices = tf.IndexedSlices(tf.ones((2, *shape[1:])), tf.constant(rows), shape)
    gradient = slices if sparse else tf.convert_to_tensor(slices)
    after = {}
    for decay in (None, 0.25):
        devices = Devices(tf.distribute.MirroredStrategy(["CPU:0"]))
        with devices.strategy.scope():
            variable = tf.Variable(start)
            trained = OPTIMIZERS[optimizer]([variable], lambda step: 0.1, 10.0, devices)
        part = None if decay is None else tf.constant(decay)
        trained.apply([gradient], tf.constant(0.1), decay=part)
        after[decay] = variable.numpy()
    decays = np.zeros(shape, bool)
    if len(shape) > 1:
        decays[rows if sparse else slice(None)] = True
    expected = after[None] - np.where(decays, 0.25 * start, 0)
    np.testing.assert_allclose(after[0.25], expected, atol=1e-6)
