"""Optimizers against the papers' equations: dense and by rows, over replicas, clipped."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import on_cpu

from bilm.training.devices import Devices
from bilm.training.optimizer import Adagrad, Adam, Muon

RATE = 0.01
ROWS = np.array([[5, 1, 5], [1, 1, 2]])  # of each replica; some occur more than once


def optimizer_of(kind, n_replicas=1, max_norm=1e9, **values):
    """Variables of these names and values, and their optimizer."""
    devices = Devices(on_cpu(n_replicas))
    with devices.strategy.scope():
        variables = {name: tf.Variable(tf.constant(v, tf.float32)) for name, v in values.items()}
        return variables, kind(variables, max_norm, devices)


def of_replica(values):
    """A gradient with a part for each replica, (replicas, ...)."""
    return lambda replica: tf.constant(values, tf.float32)[replica]


def of_rows(values, rows, shape, sparse):
    """A gradient of the rows of a table, (replicas, ...), sparse or dense."""

    def gradient(replica):
        values_of = of_replica(values)(replica)
        slices = tf.IndexedSlices(values_of, tf.constant(rows)[replica], shape)
        return slices if sparse else tf.convert_to_tensor(slices)

    return gradient


def apply(optimizer, size, *gradients):
    """One update; return the norm of the gradients."""

    def each():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return [gradient(replica) for gradient in gradients]

    return optimizer.apply(optimizer.devices.strategy.run(each), tf.constant(size, tf.float32))


def train(n_replicas, sparse, max_norm):
    """Two updates of one table; replica 1's gradient differs from replica 0's."""
    rng = np.random.default_rng(0)
    variables, optimizer = optimizer_of(Adagrad, n_replicas, max_norm, w=rng.normal(size=(7, 3)))
    norms = []
    for _ in range(2):
        gradient = of_rows(rng.normal(size=(2, 3, 3)), ROWS, (7, 3), sparse)
        norms.append(apply(optimizer, 0.2, gradient).numpy())
    return [np.asarray(v) for v in optimizer.devices.local(variables["w"])], norms


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("max_norm", [100.0, 0.5])
def test_optimizer_row_updates_equal_dense_updates(n_replicas, max_norm):
    dense, dense_norms = train(n_replicas, False, max_norm)
    sparse, sparse_norms = train(n_replicas, True, max_norm)
    np.testing.assert_allclose(dense_norms, sparse_norms, rtol=1e-6)
    for copy in sparse:
        np.testing.assert_allclose(copy, dense[0], rtol=1e-6)


def test_adagrad_update_matches_the_paper():
    variables, optimizer = optimizer_of(Adagrad, max_norm=1.0, w=[1.0, 2.0])
    norm = optimizer.apply([tf.constant([3.0, 4.0])], 0.2)
    assert norm.numpy() == pytest.approx(5.0)
    clipped = np.array([0.6, 0.8])
    expected = np.array([1.0, 2.0]) - 0.2 * clipped / np.sqrt(1.0 + clipped**2)
    np.testing.assert_allclose(variables["w"], expected, rtol=1e-6)


def reference_adam(table, gradients, used):
    """The second form of section 2 of the paper, in float64, on the rows that each step used."""
    mean, square, weights = np.zeros_like(table), np.zeros_like(table), table.copy()
    for t, (gradient, rows) in enumerate(zip(gradients, used, strict=True), start=1):
        mean[rows] = 0.9 * mean[rows] + 0.1 * gradient[rows]
        square[rows] = 0.999 * square[rows] + 0.001 * gradient[rows] ** 2
        rate = RATE * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        weights[rows] -= rate * mean[rows] / (np.sqrt(square[rows]) + 1e-8)
    return weights, mean, square


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", [(7, 3), (7,)], ids=["table", "bias"])
def test_adam_update_matches_the_paper(n_replicas, sparse, shape):
    rng = np.random.default_rng(0)
    table = rng.normal(size=shape)
    variables, optimizer = optimizer_of(Adam, n_replicas, w=table)
    means, used = [], []
    for step in range(4):
        # The first step uses row 3 too, which keeps its averages from then on.
        rows = np.where(ROWS == 2, 3, ROWS) if step == 0 else ROWS
        values = rng.normal(size=(2, 3, *shape[1:]))
        mean = np.zeros(shape)
        for k in range(n_replicas):
            np.add.at(mean, rows[k], values[k] / n_replicas)
        means.append(mean)
        used.append(np.unique(rows[:n_replicas]) if sparse else np.arange(7))

        size = optimizer.step_size(step, RATE)
        apply(optimizer, size, of_rows(values, rows, shape, sparse))
    expected = reference_adam(table, means, used)
    slots = [optimizer.slots[name]["w"] for name in ("adam_mean", "adam_square")]
    for distributed, value in zip([variables["w"], *slots], expected, strict=True):
        for copy in optimizer.devices.local(distributed):
            np.testing.assert_allclose(copy, value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_adam_clips_and_refuses_infinite_gradients(sparse):
    variables, optimizer = optimizer_of(Adam, max_norm=1.0, w=np.ones((2, 2)))

    def gradient(value):
        dense = tf.constant([[3.0, 4.0], [0.0, value]])
        return tf.IndexedSlices(dense, tf.constant([0, 1]), (2, 2)) if sparse else dense

    assert optimizer.apply([gradient(0.0)], RATE).numpy() == pytest.approx(5.0)
    mean = optimizer.slots["adam_mean"]["w"].numpy()
    np.testing.assert_allclose(mean, [[0.06, 0.08], [0, 0]], rtol=1e-6)
    before = variables["w"].numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradient's norm"):
        optimizer.apply([gradient(np.inf)], RATE)
    np.testing.assert_array_equal(variables["w"], before)
    np.testing.assert_array_equal(optimizer.slots["adam_mean"]["w"], mean)


KERNEL, TABLE = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0", "softmax/W"


@pytest.mark.parametrize("shape", [(1, 1, 6, 40), (1, 1, 40, 6), (2, 4, 5, 9)])
def test_muon_replaces_singular_values_by_about_one(shape):
    above, beside, height, width = shape
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(above * height, beside * width)).astype("float32")
    _, optimizer = optimizer_of(Muon, **{KERNEL: matrix})
    change = optimizer.change(matrix, (above, beside)).numpy() / (0.2 * max(height, width) ** 0.5)
    for i in range(above):
        for j in range(beside):
            part = slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)
            u, values, v = np.linalg.svd(matrix[part], full_matrices=False)
            inner = u.T @ change[part] @ v.T  # diagonal if the singular vectors are the same
            values = np.diag(inner)
            assert (values > 0.6).all() and (values < 1.3).all()
            np.testing.assert_allclose(inner, np.diag(values), atol=1e-3)
            np.testing.assert_allclose(u @ inner @ v, change[part], atol=1e-3)


@pytest.mark.parametrize("n_replicas", [1, 2])
def test_muon_uses_nesterov_momentum_for_matrices_and_adam_for_tables(n_replicas):
    rng = np.random.default_rng(0)
    kernel, table = rng.normal(size=(6, 8)), rng.normal(size=(7, 3))
    variables, optimizer = optimizer_of(Muon, n_replicas, **{KERNEL: kernel, TABLE: table})
    assert optimizer.slots["muon_mean"].keys() == {KERNEL}
    assert optimizer.slots["adam_mean"].keys() == {TABLE}
    of_kernel = rng.normal(size=(3, 2, 6, 8))
    of_table = rng.normal(size=(3, 2, 7, 3))
    for step in range(3):
        size = optimizer.step_size(step, RATE)
        apply(optimizer, size, of_replica(of_kernel[step]), of_replica(of_table[step]))
    mean, expected = np.zeros((6, 8)), kernel
    for gradient in of_kernel[:, :n_replicas].mean(axis=1):
        mean = 0.95 * mean + gradient
        update = optimizer.change(tf.constant(0.95 * mean + gradient, tf.float32), (2, 4))
        expected = expected - RATE * update.numpy()
    adam = reference_adam(table, of_table[:, :n_replicas].mean(axis=1), [np.arange(7)] * 3)[0]
    for copy in optimizer.devices.local(variables[KERNEL]):
        np.testing.assert_allclose(copy, expected, rtol=1e-4, atol=1e-5)
    for copy in optimizer.devices.local(variables[TABLE]):
        np.testing.assert_allclose(copy, adam, rtol=1e-4, atol=1e-6)


def test_muon_ignores_the_size_of_gradients():
    rng = np.random.default_rng(0)
    kernel, gradient = rng.normal(size=(6, 8)), rng.normal(size=(1, 6, 8))
    found = []
    for size in (1e-3, 1.0, 1e3):
        variables, optimizer = optimizer_of(Muon, **{KERNEL: kernel})
        apply(optimizer, optimizer.step_size(0, RATE), of_replica(size * gradient))
        found.append(variables[KERNEL].numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
    np.testing.assert_allclose(found[2], found[1], atol=1e-4)
