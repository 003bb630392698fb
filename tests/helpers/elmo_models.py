"""`Elmo` with the weights of the smallest golden model, and Keras models that contain it."""

import copy
import pickle
from functools import partial

import keras
import tensorflow as tf
from conftest import golden_cases

from bilm import Elmo

CASE = next(c.values[0] for c in golden_cases("inference") if c.id.endswith("1layer"))
FILES = CASE / "options.json", CASE / "weights.hdf5"
TOKENS = tf.constant([["the", "bank"], ["café", ""]])
make = partial(Elmo, *FILES)


class Subclassed(keras.Model):
    def __init__(self, layer=None):
        super().__init__()
        self.elmo = layer or make()

    def call(self, tokens):
        return self.elmo(tokens)


def functional(layer):
    tokens = keras.Input((None,), dtype="string")
    return keras.Model(tokens, layer(tokens))


COPIES = {
    "deep copy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}
