"""`Elmo` on all backends: it has its stored weights in each way Keras builds it."""

import h5py
import keras
import pytest
from elmo_models import CASE, Subclassed, assert_golden, functional, make

from bilm import Elmo


class MadeInBuild(keras.layers.Layer):
    def build(self, shape):
        self.elmo = concat()

    def call(self, ids):
        return self.elmo(ids)


def concat():
    return make(combine="concat")


def on_a_symbol(layer):
    return functional(layer, (None, 50), "int32")


WAYS = {
    "alone": lambda ids: concat()(ids),
    "subclassed": lambda ids: Subclassed(concat())(ids),
    "subclassed, predict": lambda ids: Subclassed(concat()).predict(ids, verbose=0),
    "subclassed, on a symbol": lambda ids: on_a_symbol(Subclassed(concat()))(ids),
    "made in a layer's build": lambda ids: MadeInBuild()(ids),
    "made in a layer's build, on a symbol": lambda ids: on_a_symbol(MadeInBuild())(ids),
    "clone": lambda ids: keras.models.clone_model(on_a_symbol(concat()))(ids),
    "from a config": lambda ids: Elmo.from_config(concat().get_config())(ids),
}


@pytest.mark.parametrize("way", WAYS)
def test_golden_elmo_has_stored_weights_in_each_way_of_building(way):
    with h5py.File(CASE / "expected.hdf5") as expected:
        batch = expected["batch_0"]
        assert_golden(WAYS[way](batch["char_ids"][...].astype("int32")), batch)
