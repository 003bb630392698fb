"""The weights of an `Elmo` layer: copies of them, files that are wrong or gone, and their types."""

import os
import shutil
import tracemalloc
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from conftest import golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("strings in the graph are TensorFlow's", allow_module_level=True)
import tensorflow as tf
from elmo_models import COPIES, FILES, TOKENS, Subclassed, functional, make

from bilm import Elmo
from bilm.errors import WeightsError

TABLE = "token_embeddings.hdf5"


def make_built(**kwargs):
    layer = make(**kwargs)
    layer.build()
    return layer


# --- copies ---


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_the_weights_of_its_original_and_not_those_of_the_file(how):
    layer = make_built()
    layer.mixes[0].gamma.assign(3.0)
    layer.bilm.weights[0].assign(layer.bilm.weights[0] * 2)
    np.testing.assert_array_equal(COPIES[how](layer)(TOKENS), layer(TOKENS))


def test_saved_weights_replace_the_stored_ones(tmp_path):
    """In the process that still knows the file: .keras, and .weights.h5 into a clone."""
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


# --- files ---


@pytest.fixture
def files(tmp_path):
    """Files of this test's own."""
    return [Path(shutil.copy(path, tmp_path)) for path in FILES]


def test_a_file_that_changes_before_the_layer_is_built_is_refused(files):
    layer = Elmo(*files)
    os.utime(files[1], ns=(0, 0))
    with pytest.raises(WeightsError, match="has changed since the layer was made from it"):
        layer(TOKENS)


def test_a_file_that_is_gone_before_the_layer_is_built_is_named(files):
    layer = Elmo(*files)
    files[1].unlink()
    with pytest.raises(WeightsError, match=r"weights\.hdf5: no such file"):
        layer(TOKENS)


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "in a function"])
def test_a_layer_without_weights_is_refused_until_they_are_loaded(files, in_graph):
    """Its file is gone: as in a process that never had it."""
    original = Elmo(*files)
    original.build()
    files[1].unlink()
    layer = Elmo.from_config(original.get_config())
    run = tf.function(layer) if in_graph else layer
    error = tf.errors.InvalidArgumentError if in_graph else WeightsError
    with pytest.raises(error, match="has no weights yet; load them into it"):
        run(TOKENS)
    layer.set_weights(original.get_weights())
    np.testing.assert_allclose(run(TOKENS), original(TOKENS), atol=1e-6)


WRONG = {
    "missing": lambda file, name: file.__delitem__(name),
    "of another shape": lambda file, name: replace(file, name, file[name][:-1]),
    "not finite": lambda file, name: replace(file, name, file[name][...] * np.nan),
}


def replace(file, name, value):
    del file[name]
    file[name] = value


@pytest.mark.parametrize("model", [lambda make: make()(TOKENS), lambda make: functional(make())])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_weights_are_named_however_the_layer_is_built(files, wrong, model):
    with h5py.File(files[1], "r+") as file:
        WRONG[wrong](file, "char_embed")
    message = {"missing": "missing", "not finite": "not finite"}.get(wrong, "has shape")
    with pytest.raises(WeightsError, match=f"char_embed .*{message}"):
        model(lambda: Elmo(*files))


def test_the_values_are_held_by_the_variables_alone():
    """Once these have others, nothing of what was read is left."""
    tracemalloc.start()
    layer = make_built()
    size = sum(variable.numpy().nbytes for variable in layer.variables)
    for variable in layer.variables:
        variable.assign(tf.zeros(variable.shape))
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    arrays = snapshot.filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
    assert sum(trace.size for trace in arrays.traces) < size / 10


WORDS = next(c.values[0] for c in golden_cases("inference") if (c.values[0] / TABLE).exists())


@pytest.mark.parametrize("way", ["called", "subclassed", "clone", "pickle"])
def test_a_table_of_words_is_read_however_the_layer_is_built(way):
    files = WORDS / "options.json", WORDS / "weights.hdf5"
    layer = Elmo(*files, combine="concat", embedding_weight_file=WORDS / TABLE)
    with h5py.File(WORDS / "expected_tokens.hdf5") as expected:
        batch = expected["batch_0"]
        ids, mask, layers = (batch[k][...] for k in ("token_ids", "mask", "lm_embeddings"))
    if way == "subclassed":
        found = Subclassed(layer)(ids)
    elif way == "clone":
        words = keras.Input((None,), dtype="int64")
        found = keras.models.clone_model(keras.Model(words, layer(words)))(ids)
    else:
        found = (COPIES["pickle"](layer) if way == "pickle" else layer)(ids)
    rows = np.moveaxis(layers, 1, 2)[mask].reshape(mask.sum(), -1)
    np.testing.assert_allclose(found.numpy()[mask], rows, atol=1e-5)


# --- types ---


@pytest.mark.parametrize("kind", ["mixed_bfloat16", "mixed_float16", "float16", "float64"])
@pytest.mark.parametrize("combine", ["mix", "top"])
def test_the_bilm_computes_in_float32_whatever_keras_does(kind, combine):
    """What comes out differs by its own rounding alone."""
    plain = make(combine=combine)(TOKENS).numpy()
    before, floatx = keras.config.dtype_policy(), keras.config.floatx()
    try:
        keras.config.set_floatx(kind.removeprefix("mixed_"))
        if kind.startswith("mixed_"):
            keras.config.set_floatx("float32")
        keras.config.set_dtype_policy(kind)
        model = functional(make(combine=combine))
        found = model(TOKENS)
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(before)
    assert found.dtype == kind.removeprefix("mixed_")
    assert all(v.dtype == "float32" for v in model.variables if "seed" not in v.path)
    np.testing.assert_array_equal(found, tf.cast(plain, found.dtype))
