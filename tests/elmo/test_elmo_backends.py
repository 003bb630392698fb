"""`Elmo` on all backends: it has its stored weights in each way Keras builds it."""

import h5py
import keras
import numpy as np
import pytest
from conftest import golden_cases
from keras import ops

from bilm import Elmo

FOLDER = next(c.values[0] for c in golden_cases("inference") if c.id.endswith("1layer"))


def make():
    return Elmo(FOLDER / "options.json", FOLDER / "weights.hdf5", combine="concat")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.elmo = make()

    def call(self, ids):
        return self.elmo(ids)


class MadeInBuild(keras.layers.Layer):
    def build(self, shape):
        self.elmo = make()

    def call(self, ids):
        return self.elmo(ids)


def functional(layer):
    ids = keras.Input((None, 50), dtype="int32")
    return keras.Model(ids, layer(ids))


WAYS = {
    "alone": lambda ids: make()(ids),
    "subclassed": lambda ids: Subclassed()(ids),
    "subclassed, predict": lambda ids: Subclassed().predict(ids, verbose=0),
    "subclassed, on a symbol": lambda ids: functional(Subclassed())(ids),
    "made in a layer's build": lambda ids: MadeInBuild()(ids),
    "made in a layer's build, on a symbol": lambda ids: functional(MadeInBuild())(ids),
    "clone": lambda ids: keras.models.clone_model(functional(make()))(ids),
    "from a config": lambda ids: Elmo.from_config(make().get_config())(ids),
}


@pytest.mark.parametrize("way", WAYS)
def test_golden_elmo_has_stored_weights_in_each_way_of_building(way):
    with h5py.File(FOLDER / "expected.hdf5") as expected:
        batch = expected["batch_0"]
        ids, mask, layers = (batch[k][...] for k in ("char_ids", "mask", "lm_embeddings"))
    found = ops.convert_to_numpy(WAYS[way](ids.astype("int32")))
    rows = np.moveaxis(layers, 1, 2)[mask].reshape(mask.sum(), -1)
    np.testing.assert_allclose(found[mask], rows, atol=1e-5)
