"""`Elmo` in each kind of Keras model, in graphs, replicas and threads, has its stored weights."""

import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from elmo_models import TOKENS, Subclassed, functional, make

DATA = tf.data.Dataset.from_tensors((TOKENS, tf.constant([1.0, 0.0])))


@pytest.fixture(scope="module")
def expected():
    """The output of the layer itself, which golden tests check."""
    return make()(TOKENS).numpy()


def sequential(layer):
    return keras.Sequential([keras.Input((None,), dtype="string"), layer])


def predict(model):
    return model.predict(tf.data.Dataset.from_tensors(TOKENS), verbose=0)


def fit(model):
    """With a learning rate of 0: training changes nothing."""
    model.compile(keras.optimizers.SGD(0.0), vectors_only)
    model.fit(DATA, verbose=0, shuffle=False)
    return model(TOKENS)


def vectors_only(labels, vectors):
    return tf.reduce_mean(vectors, axis=-1)


def in_a_function(call):
    return tf.function(call)(TOKENS)


def in_a_pipeline(call):
    return next(iter(tf.data.Dataset.from_tensors(TOKENS).map(call)))


def made_in_a_function():
    made = []

    @tf.function
    def run(tokens):
        made.append(made[0] if made else make())
        return made[0](tokens)

    return run(TOKENS)


def in_replicas(use):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        return use(Subclassed())


WAYS = {
    "functional": lambda: functional(make())(TOKENS),
    "sequential": lambda: sequential(make())(TOKENS),
    "subclassed, fit": lambda: fit(Subclassed()),
    "first called in a function": lambda: in_a_function(make()),
    "made in a function": made_in_a_function,
    "first called in tf.data": lambda: in_a_pipeline(make()),
    "in replicas, predict": lambda: in_replicas(predict),
    "stateful": lambda: functional(make(stateful=True))(TOKENS),
    "stateful, in a function": lambda: in_a_function(make(stateful=True)),
}


@pytest.mark.parametrize("way", WAYS)
def test_elmo_has_stored_weights_in_each_kind_of_keras_model(way, expected):
    np.testing.assert_allclose(WAYS[way](), expected, atol=1e-6)


def test_elmo_shared_by_threads(expected):
    layer, start = make(), threading.Barrier(8)

    def call(_):
        start.wait()
        return layer(TOKENS).numpy()

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(call, range(8)):
            np.testing.assert_allclose(found, expected, atol=1e-6)
    alone = make()
    alone.build()
    assert len(layer.variables) == len(alone.variables)
