"""The weights of `Elmo`: copies, wrong or missing files, and types."""

import os
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from elmo_models import CASES, COPIES, FILES, TABLE, TOKENS, assert_golden, functional, make

from bilm import Elmo
from bilm.errors import WeightsError


@pytest.mark.parametrize("how", COPIES)
def test_elmo_copy_has_the_changed_weights_of_the_original(how):
    layer = make()
    layer.build()
    layer.mixes[0].gamma.assign(3.0)
    layer.bilm.weights[0].assign(layer.bilm.weights[0] * 2)
    np.testing.assert_array_equal(COPIES[how](layer)(TOKENS), layer(TOKENS))


def test_elmo_saved_weights_replace_stored_weights(tmp_path):
    """Also in the process that created the layer from the file."""
    model = functional(make())
    for variable in model.variables:
        variable.assign(variable * 1.1)
    changed = model(TOKENS).numpy()
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(TOKENS), changed, atol=1e-6)
    clone = keras.models.clone_model(model)
    clone.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(clone(TOKENS), changed, atol=1e-6)


@pytest.fixture
def files(tmp_path):
    return [Path(shutil.copy(path, tmp_path)) for path in FILES]


def test_elmo_refuses_a_file_changed_before_build(files):
    layer = Elmo(*files)
    os.utime(files[1], ns=(0, 0))
    with pytest.raises(WeightsError, match="has changed since the model was opened"):
        layer(TOKENS)


def test_elmo_without_weights_is_an_error_until_they_are_loaded(files):
    """Its file is gone: as in a process that never had it."""
    original = Elmo(*files)
    original.build()
    files[1].unlink()
    layer = Elmo.from_config(original.get_config())
    with pytest.raises(WeightsError, match="load the weights of the biLM before the first call"):
        layer(TOKENS)
    with pytest.raises(tf.errors.InvalidArgumentError, match="load the weights of the biLM"):
        tf.function(layer)(TOKENS)
    layer.set_weights(original.get_weights())
    np.testing.assert_allclose(layer(TOKENS), original(TOKENS), atol=1e-6)


@pytest.mark.parametrize("model", [lambda make: make()(TOKENS), lambda make: functional(make())])
def test_elmo_names_wrong_weights(files, model):
    with h5py.File(files[1], "r+") as file:
        file["char_embed"][...] *= np.nan
    with pytest.raises(WeightsError, match=r"char_embed .*not finite"):
        model(lambda: Elmo(*files))


@pytest.mark.parametrize("folder", [folder for folder in CASES if (folder / TABLE).exists()])
@pytest.mark.parametrize("way", ["called", "clone", "pickle"])
def test_golden_elmo_reads_a_word_table_in_each_way_of_building(way, folder):
    files = folder / "options.json", folder / "weights.hdf5"
    layer = Elmo(*files, combine="concat", embedding_weight_file=folder / TABLE)
    build = {
        "clone": lambda layer: keras.models.clone_model(functional(layer, dtype="int64")),
        "pickle": COPIES["pickle"],
    }.get(way, lambda layer: layer)
    with h5py.File(folder / "expected_tokens.hdf5") as expected:
        batch = expected["batch_0"]
        assert_golden(build(layer)(batch["token_ids"][...]), batch)
    again = Elmo.from_config(layer.get_config())
    again.build()
    assert again.n_words == layer.n_words and again.options.char_cnn is None


@pytest.mark.parametrize("kind", ["mixed_bfloat16", "mixed_float16", "float16", "float64"])
def test_elmo_computes_in_float32_under_any_policy(kind, keras_config):
    """What comes out differs by its own rounding alone."""
    combine = "top" if kind == "float16" else "mix"
    plain = make(combine=combine)(TOKENS).numpy()
    keras_config.set_floatx("float32" if kind.startswith("mixed_") else kind)
    keras_config.set_dtype_policy(kind)
    model = functional(make(combine=combine))
    found = model(TOKENS)
    assert found.dtype == kind.removeprefix("mixed_")
    assert all(v.dtype == "float32" for v in model.variables if "seed" not in v.path)
    np.testing.assert_array_equal(found, tf.cast(plain, found.dtype))
