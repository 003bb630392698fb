"""The average of the weights over the steps of a run."""

import keras
import numpy as np
import pytest
from tiny_runs import HELDOUT, WORDS, load_run, run, tiny_options, weights_of

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm.language_model import BiLM
from bilm.storage.checkpoint import latest_checkpoint
from bilm.storage.names import stored_values, stored_variables
from bilm.training.averaging import WeightAverage
from bilm.training.devices import Devices
from bilm.training.run_folder import RunFolder

AVERAGED = WORDS | {"average_decay": 0.9}
TABLES = {"bidirectional": True, "optimizer": "adam", "average_decay": 0.9}


def trained_weights(folder):
    """The weights that training continues from, by name, without those of other groups."""
    reader = tf.train.load_checkpoint(latest_checkpoint(folder).path)
    keys = reader.get_variable_to_shape_map()
    group = "trained" if any(key.startswith("trained/") for key in keys) else "weights"
    return {
        key.split("/")[1].replace(".S", "/"): reader.get_tensor(key)
        for key in keys
        if key.startswith(f"{group}/")
    }


def assert_same(found, expected, atol=0.0):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


def ages(decay, steps):
    """The mean age, in steps, of the weights in the average after each of some steps."""
    devices = Devices(tf.distribute.MirroredStrategy(["CPU:0"]))
    with devices.strategy.scope():
        model = BiLM(tiny_options(**WORDS).model, 5, softmax=True)
        model.build()
        average = WeightAverage(model, decay, devices)
    (bias, of_average) = (stored_variables(m)["softmax/b"] for m in (model, average.model))
    found = {}
    for step in range(1, max(steps) + 1):
        bias.assign(np.full(5, step, "float32"))
        average.update(step)
        found[step] = step - float(of_average[0])
    return [found[step] for step in steps]


def test_average_covers_a_share_of_the_steps_at_first():
    np.testing.assert_allclose(ages(0.999, [1, 2, 11, 41]), [0, 0.1, 1, 4], atol=1e-4)


def test_average_covers_the_last_steps_in_the_end():
    """An exponential average of each tenth step: the present one, and those 10, 20, ... before."""
    (age,) = ages(0.9, [300])
    kept = 0.9**10
    assert age == pytest.approx(10 * kept / (1 - kept), rel=1e-3)


@pytest.mark.parametrize("n_replicas", [1, 2])
@pytest.mark.parametrize("changes", [AVERAGED, TABLES], ids=["words", "characters"])
def test_resume_with_an_average_is_bit_identical(tmp_path, changes, n_replicas):
    how = {"changes": changes, "n_replicas": n_replicas}
    run(tmp_path / "straight", 4, **how)
    for n_steps in (2, 4):
        run(tmp_path / "resumed", n_steps, **how)
    for read in (weights_of, trained_weights):
        assert_same(read(tmp_path / "resumed"), read(tmp_path / "straight"))


def test_average_is_measured_and_stored_as_the_model_and_does_not_change_training(tmp_path):
    run(tmp_path / "plain", 4, heldout=HELDOUT)
    run(tmp_path / "run", 4, changes=AVERAGED, heldout=HELDOUT)
    plain, average = weights_of(tmp_path / "plain"), weights_of(tmp_path / "run")
    assert_same(trained_weights(tmp_path / "run"), plain)
    assert all((average[name] != plain[name]).any() for name in plain)
    assert_same(stored_values(load_run(tmp_path / "run" / "best")), average)
    means = [RunFolder(tmp_path / k).read_measured().perplexity.mean for k in ("plain", "run")]
    assert means[0] != means[1]
    run(tmp_path / "first", 1, changes=AVERAGED)
    assert_same(weights_of(tmp_path / "first"), trained_weights(tmp_path / "first"), 1e-6)


def test_resume_of_a_run_without_average_starts_it_from_the_present_weights(tmp_path, log):
    run(tmp_path / "plain", 4)
    run(tmp_path / "run", 2)
    run(tmp_path / "run", 4, changes=AVERAGED)
    assert "contains no average; it starts from these weights" in log.text
    assert_same(trained_weights(tmp_path / "run"), weights_of(tmp_path / "plain"))
    assert all(
        (value != trained_weights(tmp_path / "run")[name]).any()
        for name, value in weights_of(tmp_path / "run").items()
    )


def test_resume_without_the_average_of_a_run_continues_from_the_trained_weights(tmp_path, log):
    run(tmp_path / "plain", 4)
    run(tmp_path / "run", 2, changes=AVERAGED)
    run(tmp_path / "run", 4)
    assert "the average in it is not used" in log.text
    assert_same(weights_of(tmp_path / "run"), weights_of(tmp_path / "plain"))


def test_average_of_replicas_equals_that_of_one_with_all_rows(tmp_path):
    changes = AVERAGED | {"share_negatives": True, "dropout": 0.0}
    for n_replicas in (1, 2):
        rows = changes | {"batch_size": 4 // n_replicas}
        run(tmp_path / str(n_replicas), 3, n_replicas=n_replicas, changes=rows)
    assert_same(weights_of(tmp_path / "2"), weights_of(tmp_path / "1"), 1e-6)
