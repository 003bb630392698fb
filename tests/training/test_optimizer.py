"""Adagrad: sparse equals dense, over replicas, and a big table costs what is used of it."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the optimizer is TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm.training.devices import Devices
from bilm.training.optimizer import Adagrad


def train(n_replicas, sparse, max_norm):
    """Two updates of one table; replica 1's gradient differs from replica 0's."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(n_replicas)])
    rng = np.random.default_rng(0)
    with strategy.scope():
        table = tf.Variable(tf.constant(rng.normal(size=(7, 3)), tf.float32))
        optimizer = Adagrad([table], 0.2, max_norm, Devices(strategy))
    rows = tf.constant([[5, 1, 5], [1, 1, 2]])
    norms = []
    for _ in range(2):
        values = tf.constant(rng.normal(size=(2, 3, 3)), tf.float32)

        def gradient(values=values):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            slices = tf.IndexedSlices(values[replica], rows[replica], (7, 3))
            return slices if sparse else tf.convert_to_tensor(slices)

        norms.append(optimizer.apply([strategy.run(gradient)], 0.2).numpy())
    return [np.asarray(v) for v in strategy.experimental_local_results(table)], norms


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("max_norm", [100.0, 0.5])
def test_sparse_equals_dense(n_replicas, max_norm):
    dense, dense_norms = train(n_replicas, False, max_norm)
    sparse, sparse_norms = train(n_replicas, True, max_norm)
    np.testing.assert_allclose(dense_norms, sparse_norms, rtol=1e-6)
    for copy in sparse:
        np.testing.assert_allclose(copy, dense[0], rtol=1e-6)


def test_the_update_is_the_papers():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0])
        optimizer = Adagrad([weight], 0.2, 1.0, Devices(strategy))
    norm = optimizer.apply([tf.constant([3.0, 4.0])], 0.2)
    assert norm.numpy() == pytest.approx(5.0)
    clipped = np.array([0.6, 0.8])
    expected = np.array([1.0, 2.0]) - 0.2 * clipped / np.sqrt(1.0 + clipped**2)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
