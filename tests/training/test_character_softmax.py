"""A softmax whose rows are computed from the characters of the words."""

from contextlib import closing

import h5py
import keras
import numpy as np
import pytest
from tiny_runs import (
    HELDOUT,
    TEXT,
    VOCABULARY,
    load_run,
    on_cpu,
    run,
    tiny_options,
    weights_of,
)

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.errors import OptionsError
from bilm.scoring.perplexity import heldout_dataset, perplexity
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.devices import Devices
from bilm.training.run_folder import RunFolder
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText

CHARACTERS = {"softmax_rows": "characters", "optimizer": "adam", "learning_rate": 0.02}
VOCAB = UnicodeCharsVocabulary(VOCABULARY, 50)


def assert_same(found, expected, atol=0.0):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with an average of the weights, not to be written to."""
    folder = tmp_path_factory.mktemp("characters") / "run"
    run(folder, 6, heldout=HELDOUT, changes=CHARACTERS)
    return folder


def test_stored_rows_are_computed_from_the_characters(trained):
    reader = tf.train.load_checkpoint(latest_checkpoint(trained).path)
    matrix = reader.get_tensor("weights/softmax.SM/.ATTRIBUTES/VARIABLE_VALUE")
    model = load_run(trained)
    rows = np.array(model.encoder.features(VOCAB.word_char_ids)) @ matrix
    np.testing.assert_allclose(model.softmax.kernel.numpy(), rows, atol=1e-6)


def test_measured_perplexity_is_that_of_the_stored_softmax(trained):
    expected = RunFolder(trained).read_measured().perplexity
    found = perplexity(load_run(trained), heldout_dataset(HELDOUT, VOCAB, True), 2)
    assert found.mean == pytest.approx(expected.mean, rel=1e-6)


def test_export_with_a_softmax_of_characters_is_an_ordinary_softmax(trained, tmp_path, run_here):
    done = run_here("bilm export", "--model", trained, "--output", tmp_path, "--include_softmax")
    assert done.returncode == 0 and "does not use" not in done.stderr
    with h5py.File(tmp_path / "weights_softmax.hdf5") as file:
        assert set(file["softmax"]) == {"W", "b"}
    assert_same(weights_of(tmp_path), weights_of(trained))


def test_loss_with_computed_rows_equals_that_with_the_table():
    trainer = Trainer(
        tiny_options(**CHARACTERS | {"dropout": 0.0}), VOCAB.size, Devices(on_cpu()),
        characters=VOCAB.word_char_ids,
    )  # fmt: skip
    text = TrainingText(trainer.options, VOCAB, resolve_shards(TEXT), 0)
    with closing(text):
        batches = text.batches(trainer.devices, None)
        for step in range(3):
            trainer.step(batches, step)
        batch = next(batches)
    trainer.update_softmax()
    losses = []
    for own in (batch, {k: v for k, v in batch.items() if k != "scored"}):
        seeds = trainer.dropout_seeds(0)
        losses.append(trainer.forward(own, trainer.state, seeds)[0].measured.numpy())
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize(("changes", "n_replicas"), [({}, 2), ({"slot_dtype": "bfloat16"}, 1)])
def test_resume_with_a_softmax_of_characters_is_bit_identical(tmp_path, changes, n_replicas):
    how = {"changes": CHARACTERS | changes, "n_replicas": n_replicas}
    run(tmp_path / "straight", 4, **how)
    for n_steps in (2, 4):
        run(tmp_path / "resumed", n_steps, **how)
    readers = [
        tf.train.load_checkpoint(latest_checkpoint(tmp_path / name).path)
        for name in ("straight", "resumed")
    ]
    names = [key for key in readers[0].get_variable_to_shape_map() if key.endswith("_VALUE")]
    assert "adam_mean/softmax.SM/.ATTRIBUTES/VARIABLE_VALUE" in names
    assert not any(key.startswith("adam_mean/softmax.SW") for key in names)
    for name in names:
        values = [reader.get_tensor(name) for reader in readers]
        np.testing.assert_array_equal(*values, err_msg=name)


def test_softmax_of_characters_of_replicas_equals_that_of_one_with_all_rows(tmp_path):
    changes = CHARACTERS | {"share_negatives": True, "dropout": 0.0, "optimizer": "adagrad"}
    for n_replicas in (1, 2):
        rows = changes | {"batch_size": 4 // n_replicas}
        run(tmp_path / str(n_replicas), 3, n_replicas=n_replicas, changes=rows)
    assert_same(weights_of(tmp_path / "2"), weights_of(tmp_path / "1"), 1e-6)


def test_resume_refuses_another_kind_of_softmax(tmp_path):
    run(tmp_path / "run", 1, changes={})
    with pytest.raises(OptionsError, match=r"softmax_rows is table .* but characters was"):
        run(tmp_path / "run", 2, changes={"softmax_rows": "characters"})


@pytest.mark.parametrize("change", [{"char_cnn": None}, {"sample_softmax": False}])
def test_softmax_of_characters_requires_characters_and_samples(change):
    with pytest.raises(OptionsError, match=r'softmax_rows: found "characters", expected "table"'):
        tiny_options(**CHARACTERS | change)


def test_softmax_of_characters_requires_fewer_negatives_than_words(tmp_path):
    changes = CHARACTERS | {"n_negative_samples_batch": 49}
    with pytest.raises(OptionsError, match=r"n_negative_samples_batch: found 49, .* 49 words"):
        run(tmp_path, 1, changes=changes)
