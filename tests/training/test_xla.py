"""Training steps with windows and losses compiled by XLA, against TensorFlow's own kernels."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("XLA is tested with TensorFlow", allow_module_level=True)
import tensorflow as tf
from tiny_runs import REGULARIZED, TEXT, VOCABULARY, tiny_options

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.layers import sampled_softmax
from bilm.storage.names import stored_variables
from bilm.training import step as training_step
from bilm.training.devices import Devices
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText

SLOW = {
    "full softmax": {"sample_softmax": False},
    "shared table": {
        "char_cnn": None, "share_embedding_softmax": True, "sample_softmax": False
    },
    "no projection, no clips": {
        "lstm": {"projection_dim": 8, "cell_clip": None, "proj_clip": None},
        "bidirectional": False,
    },
}  # fmt: skip
VARIANTS = [
    pytest.param({}, id="sampled"),
    pytest.param(REGULARIZED, id="regularized"),
    *(pytest.param(changes, marks=pytest.mark.slow, id=name) for name, changes in SLOW.items()),
]


def trainers(n_replicas=1, **changes):
    """A trainer without and one with XLA, with equal weights, and a batch of each replica."""
    options = tiny_options(**changes, state_reset_probability=0.2, unroll_steps=2)
    devices = Devices(tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(n_replicas)]))
    vocab = UnicodeCharsVocabulary(VOCABULARY, 50)
    made = []
    for is_compiled in (False, True):
        keras.utils.set_random_seed(0)
        made.append(Trainer(options, vocab.size, devices, seed=1, xla=is_compiled))
    text = TrainingText(options, vocab, resolve_shards(TEXT), 0)
    batch = next(text.batches(devices, None))
    text.close()
    return made, batch


def gradients(trainer, batch):
    """Losses, next states and gradients by name, of the first replica."""
    run = tf.function(trainer._gradients, autograph=False)
    parts = trainer.devices.strategy.run(run, (batch, trainer.state, tf.constant(3)))
    found, losses, state = tf.nest.map_structure(lambda v: trainer.devices.local(v)[0], parts)
    names = stored_variables(trainer.model)
    values = {"losses": losses, "state": tf.concat(trainer.model.flatten_state(state), axis=1)}
    values |= dict(zip(names, found, strict=True))
    return {name: tf.convert_to_tensor(value).numpy() for name, value in values.items()}


@pytest.mark.parametrize("changes", VARIANTS)
def test_xla_gives_equal_losses_and_gradients(changes):
    (plain, compiled), batch = trainers(**changes)
    expected, found = gradients(plain, batch), gradients(compiled, batch)
    assert set(found) == set(expected) and len(found) > 5
    for name, value in expected.items():
        largest = np.abs(value).max()
        assert largest > 0, name
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * largest, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, REGULARIZED], ids=["default", "regularized"])
def test_xla_trains_replicas_like_tensorflow(changes):
    (plain, compiled), _ = trainers(2, **changes)
    vocab = UnicodeCharsVocabulary(VOCABULARY, 50)
    results = []
    for trainer in (plain, compiled):
        text = TrainingText(trainer.options, vocab, resolve_shards(TEXT), 0)
        batches = text.batches(trainer.devices, None)
        steps = [trainer.step(batches, step) for step in range(4)]
        text.close()
        results.append((np.array([step.losses for step in steps]), trainer))
    assert results[0][0].shape == (4, 2, 2)
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-5)
    for name, variable in stored_variables(plain.model).items():
        found = stored_variables(compiled.model)[name]
        np.testing.assert_allclose(found, variable, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_xla_leaves_the_slices_of_a_large_softmax_in_order(monkeypatch):
    """XLA may compute the slices at the same time, so they are not compiled."""
    for module in (sampled_softmax, training_step):
        monkeypatch.setattr(module, "VOCABULARY_CHUNK", 16)
    (plain, compiled), batch = trainers(sample_softmax=False)
    expected, found = gradients(plain, batch), gradients(compiled, batch)
    for name, value in expected.items():
        largest = np.abs(value).max()
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * largest, err_msg=name)
