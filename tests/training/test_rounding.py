"""Slots in bfloat16: stochastic rounding, updates close to those with float32 slots, resuming."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from tiny_runs import run, weights_of

from bilm.errors import OptionsError
from bilm.training import optimizer as optimizer_module
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS
from bilm.training.rounding import stochastic_bfloat16

N_COLUMNS = 500
ROWS = [4, 1]  # those of the gradient of a table


@pytest.mark.parametrize("value", [1.001, -1.001, 3e-12, 0.0])
def test_stochastic_rounding_is_right_in_expectation(value):
    values = tf.fill((2, 20_000), value)
    rounded = stochastic_bfloat16(values, [3, 5])
    assert rounded.dtype == tf.bfloat16
    np.testing.assert_array_equal(
        rounded.numpy().view(np.uint16), stochastic_bfloat16(values, [3, 5]).numpy().view(np.uint16)
    )
    found = tf.cast(rounded, tf.float32).numpy()
    assert len(np.unique(found)) == (2 if value else 1)
    np.testing.assert_allclose(found, value, rtol=2**-7)
    np.testing.assert_allclose(found.mean(), value, rtol=1e-4)


def trained(name, slot_dtype, sparse, n_replicas=1, n_steps=300, seed=0):
    """Return a matrix after some steps with equal gradients up to noise, on each replica, and the
    optimizer."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(n_replicas)])
    variable_name = "table" if sparse else "RNN_0/W_P_0"
    with strategy.scope():
        matrix = tf.Variable(tf.ones((6, N_COLUMNS)))
        optimizer = OPTIMIZERS[name](
            {variable_name: matrix}, lambda step: 0.01, 1e9, Devices(strategy), slot_dtype, seed
        )

    @tf.function(autograph=False)
    def step(number, size):
        def gradient():
            values = 1 + tf.random.stateless_normal((6, N_COLUMNS), tf.stack([9, number]))
            rows = tf.constant(ROWS)
            return tf.IndexedSlices(tf.gather(values, rows), rows, (6, 1)) if sparse else values

        return optimizer.apply([strategy.run(gradient)], size, step=number)

    for number in range(n_steps):
        step(tf.constant(number), tf.constant(optimizer.step_size(number), tf.float32))
    return [np.asarray(v) for v in strategy.experimental_local_results(matrix)], optimizer


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_bfloat16_slots_change_weights_little(name, sparse):
    (expected,), _ = trained(name, "float32", sparse)
    (found,), optimizer = trained(name, "bfloat16", sparse)
    moved = np.abs(expected - 1).mean()
    assert np.abs(found - expected).mean() < 0.03 * moved
    untouched = [0, 2, 3, 5] if sparse else []
    assert (found[untouched] == 1).all()
    assert {v.dtype for slots in optimizer.slots.values() for v in slots.values()} == {tf.bfloat16}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_update_in_blocks_of_rows_equals_update_at_once(monkeypatch, name):
    (at_once,), whole = trained(name, "bfloat16", sparse=False, n_steps=5)
    monkeypatch.setattr(optimizer_module, "AT_ONCE", 4 * N_COLUMNS)  # 4 rows and 2 rows
    (in_blocks,), parts = trained(name, "bfloat16", sparse=False, n_steps=5)
    np.testing.assert_array_equal(at_once, in_blocks)
    for slot in whole.slots:
        for variable, values in whole.slots[slot].items():
            np.testing.assert_array_equal(
                tf.cast(values, tf.float32), tf.cast(parts.slots[slot][variable], tf.float32)
            )


def test_bfloat16_average_of_squares_does_not_stop():
    _, optimizer = trained("adam", "bfloat16", sparse=False, n_steps=600)
    (square,) = optimizer.slots["adam_square"].values()
    expected = 2 * (1 - 0.999**600)  # the mean square of the gradients is 2
    assert tf.cast(square, tf.float32).numpy().mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_bfloat16_slots_are_equal_on_all_replicas(sparse):
    copies, optimizer = trained("adam", "bfloat16", sparse, n_replicas=2, n_steps=5)
    np.testing.assert_array_equal(*copies)
    for slots in optimizer.slots.values():
        for slot in slots.values():
            first, second = (np.asarray(tf.cast(v, tf.float32)) for v in slot.values)
            np.testing.assert_array_equal(first, second)
    (one,), _ = trained("adam", "bfloat16", sparse, n_steps=5)
    np.testing.assert_allclose(copies[0], one, rtol=1e-5)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("n_replicas", [1, 2])
def test_resume_with_bfloat16_slots_is_bit_identical(tmp_path, optimizer, n_replicas):
    changes = {"optimizer": optimizer, "slot_dtype": "bfloat16"}
    how = {"n_replicas": n_replicas, "changes": changes}
    run(tmp_path / "straight", 4, **how)
    run(tmp_path / "resumed", 2, **how)
    run(tmp_path / "resumed", 4, **how)
    straight, resumed = (weights_of(tmp_path / name) for name in ("straight", "resumed"))
    assert straight.keys() == resumed.keys()
    for name in straight:
        np.testing.assert_array_equal(straight[name], resumed[name], name)


def test_resume_refuses_another_slot_dtype(tmp_path):
    run(tmp_path / "run", 1, changes={})
    with pytest.raises(OptionsError, match=r"slot_dtype is float32 .* but bfloat16 was requested"):
        run(tmp_path / "run", 2, changes={"slot_dtype": "bfloat16"})
