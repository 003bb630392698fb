"""`Elmo` with the weights of the smallest golden model, and Keras models that contain it."""

import copy
import pickle
from functools import partial

import keras
import numpy as np
from conftest import golden_cases
from keras import ops

from bilm import Elmo

CASES = [case.values[0] for case in golden_cases("inference")]
CASE = next(folder for folder in CASES if folder.name.endswith("1layer"))
FILES = CASE / "options.json", CASE / "weights.hdf5"
TABLE = "token_embeddings.hdf5"
WORDS = next(folder for folder in CASES if (folder / TABLE).exists())
make = partial(Elmo, *FILES)
word_layer = partial(
    Elmo, WORDS / "options.json", WORDS / "weights.hdf5", embedding_weight_file=WORDS / TABLE
)
if keras.backend.backend() == "tensorflow":  # the only backend with strings
    TOKENS = ops.convert_to_tensor([["the", "bank"], ["café", ""]])


class Subclassed(keras.Model):
    def __init__(self, layer=None):
        super().__init__()
        self.elmo = layer or make()

    def call(self, tokens):
        return self.elmo(tokens)


def functional(layer, shape=(None,), dtype="string"):
    tokens = keras.Input(shape, dtype=dtype)
    return keras.Model(tokens, layer(tokens))


COPIES = {"deep copy": copy.deepcopy, "pickle": lambda layer: pickle.loads(pickle.dumps(layer))}


def assert_golden(found, batch):
    """Compare the output of a layer with `combine="concat"` with a golden batch."""
    layers, mask = np.moveaxis(batch["lm_embeddings"][...], 1, 2), batch["mask"][...]
    rows = layers[mask].reshape(mask.sum(), -1)
    np.testing.assert_allclose(ops.convert_to_numpy(found)[mask], rows, atol=1e-5)
