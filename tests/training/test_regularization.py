"""Dropout of all kinds and weight decay in training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from stored_files import stored_values
from tiny_runs import REGULARIZED, TEXT, VOCABULARY, WORDS, on_cpu, tiny_options

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.language_model import BiLM
from bilm.layers.lstm import LSTMCell
from bilm.layers.stack import DropoutSeeds, LSTMStack, Regularization
from bilm.training.devices import Devices
from bilm.training.optimizer import OPTIMIZERS
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText

BOTH_WAYS = WORDS | REGULARIZED | {"bidirectional": True}
VOCAB = UnicodeCharsVocabulary(VOCABULARY, 50)


def trainer_of(n_replicas=1, precision="float32", **changes):
    """A trainer with the initial weights of seed 0."""
    devices = Devices(on_cpu(n_replicas))
    keras.utils.set_random_seed(0)
    return Trainer(tiny_options(**changes), VOCAB.size, devices, seed=1, precision=precision)


def batches_of(trainer):
    text = TrainingText(trainer.options, VOCAB, resolve_shards(TEXT), 0)
    return (batch for batch, _ in text.batches(trainer.devices))


@pytest.mark.parametrize("optimizer", [pytest.param("adagrad", marks=pytest.mark.slow), "adam"])
def test_regularization_in_bfloat16_is_finite(optimizer):
    trainer = trainer_of(precision="bfloat16", **BOTH_WAYS | {"optimizer": optimizer})
    before = stored_values(trainer.model)
    batches = batches_of(trainer)
    for step in range(4):
        assert np.isfinite(trainer.step(next(batches), step).losses).all()
    for name, value in stored_values(trainer.model).items():
        assert np.isfinite(value).all() and (value != before[name]).any(), name


def test_replicas_draw_their_own_masks():
    two = trainer_of(2, **REGULARIZED | {"lstm": {"n_layers": 1}})
    seeds = two.devices.strategy.run(tf.function(lambda: two.dropout_seeds(0), autograph=False))
    of_replicas = [two.devices.local(value) for value in tf.nest.flatten(seeds)]
    first, second = (np.stack(own) for own in zip(*of_replicas, strict=True))
    assert (first != second).any(axis=1).all()  # of each direction, or of tokens and characters


def stack_of(width, variational):
    cells = LSTMCell(16, width), LSTMCell(16, width)
    return LSTMStack(cells, regularization=Regularization(0.5, variational))


@pytest.mark.parametrize("variational", [False, True])
def test_variational_dropout_of_the_output_is_constant_over_a_window(variational):
    stack = stack_of(8, variational)
    stack.build((None, None, 8))
    x = np.random.default_rng(0).normal(size=(6, 4, 8)).astype("float32")
    seed = tf.constant([3, 4])
    outputs, _ = stack(x, stack.zero_state(4), dropout_seed=seed, training=True)
    is_zero = np.array(outputs[-1]) == 0
    assert 0 < is_zero.mean() < 1
    assert (is_zero == is_zero[:1]).all() == variational


def masks_of(stack, seed, width):
    """The masks of the inputs of two layers and of the output, (5, 2, width)."""
    ones = tf.ones((5, 2, width))
    return [np.array(stack.dropped(ones, seed, number)) != 0 for number in range(3)]


def test_variational_masks_differ_by_step_direction_and_layer():
    trainer = trainer_of(**BOTH_WAYS)
    model, masks = trainer.model, []
    for step in (3, 4):
        seeds = trainer.dropout_seeds(tf.constant(step)).layers
        for name, stack in model.stacks.items():
            masks += masks_of(stack, seeds[name], 4)
    assert all((mask == mask[:1]).all() for mask in masks)
    seed = trainer.dropout_seeds(tf.constant(3)).layers["forward"]
    again = masks_of(model.stacks["forward"], seed, 4)
    np.testing.assert_array_equal(again[0], masks[0])
    seeds = [trainer.dropout_seeds(tf.constant(step)) for step in (3, 4)]
    layers = [np.array(seed.layers[d]) for seed in seeds for d in model.directions]
    tokens = [np.array(seed.tokens) for seed in seeds]
    assert len({tuple(seed) for seed in layers + tokens}) == 6
    drawn = masks_of(stack_of(64, True), tf.constant([1, 2]), 64)
    assert len({mask.tobytes() for mask in drawn}) == 3  # both inputs and the output


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_embedding_dropout_drops_tokens_at_all_positions_and_scales_the_others(kind):
    changes = {"char_cnn": None} if kind == "words" else {}
    settings = Regularization(embedding_dropout=0.6)
    model = BiLM(tiny_options(**changes).model, 100, regularization=settings)
    model.build()
    places = np.arange(100, dtype="int32").reshape(2, 50) % 40
    both = {"forward": tf.constant(places), "backward": tf.constant(places[:, ::-1])}
    batch = {"distinct": tf.range(40), "places": both}
    if kind == "characters":
        spelled = np.random.default_rng(0).integers(0, 255, (40, 9))
        batch["distinct"] = [tf.constant(spelled[:30]), tf.constant(spelled[30:])]
    plain = {d: np.array(v) for d, v in model.encode(batch).items()}
    seeds = DropoutSeeds(tokens=tf.constant([5, 6]))
    found = {d: np.array(v) for d, v in model.encode(batch, seeds).items()}
    dropped = set(places[(found["forward"] == 0).all(-1)].tolist())
    assert 15 < len(dropped) < 35
    for direction, ids in (("forward", places), ("backward", places[:, ::-1])):
        kept = ~np.isin(ids, list(dropped))[..., None]
        expected = plain[direction] * kept / (1 - 0.6)
        np.testing.assert_allclose(found[direction], expected, rtol=1e-5)


def applied(optimizer, gradient, start, decay, max_norm=10.0):
    """The weights and slots after a step of an optimizer, run as a graph."""
    devices = Devices(on_cpu())
    with devices.strategy.scope():
        variable = tf.Variable(start)
        trained = OPTIMIZERS[optimizer]({"softmax/W": variable}, max_norm, devices)
    part = None if decay is None else tf.constant(decay)
    size = tf.fill(np.shape(trained.step_size(0, 0.1)), 0.1)
    step = tf.function(lambda: trained.apply([gradient], size, decay=part), autograph=False)
    try:
        step()
    except tf.errors.InvalidArgumentError as error:
        assert "gradient's norm" in error.message
    return variable.numpy(), [v.numpy() for slots in trained.slots.values() for v in slots.values()]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shape", [(5, 3), (5,)], ids=["table", "bias"])
def test_weight_decay_is_decoupled_from_the_gradient(optimizer, sparse, shape):
    """Weights lose a share, whatever the gradient; biases do not, and the slots are equal."""
    start = np.random.default_rng(0).normal(size=shape).astype("float32")
    rows = np.array([3, 1])
    decays = np.zeros(shape, bool)
    if len(shape) > 1:
        decays[rows if sparse else slice(None)] = True
    for size in (1.0, 1000.0):  # the second is clipped
        slices = tf.IndexedSlices(tf.fill((2, *shape[1:]), size), tf.constant(rows), shape)
        gradient = slices if sparse else tf.convert_to_tensor(slices)
        plain, plain_slots = applied(optimizer, gradient, start, None)
        decayed, slots = applied(optimizer, gradient, start, 0.25)
        assert (plain[rows] != start[rows]).all()
        np.testing.assert_allclose(decayed, plain - np.where(decays, 0.25 * start, 0), atol=1e-6)
        for found, expected in zip(slots, plain_slots, strict=True):
            np.testing.assert_array_equal(found, expected)
