"""`Elmo` has its stored weights in whatever way Keras builds it: each gives the layer's vectors."""

import copy
import os
import pickle
import shutil
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from conftest import golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("strings in the graph are TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm import Elmo
from bilm.errors import WeightsError

CASE = next(c.values[0] for c in golden_cases("inference") if c.id.endswith("1layer"))
FILES = CASE / "options.json", CASE / "weights.hdf5"
TABLE = "token_embeddings.hdf5"
TOKENS = tf.constant([["the", "bank"], ["café", ""]])
DATA = tf.data.Dataset.from_tensors((TOKENS, tf.constant([1.0, 0.0])))
make = partial(Elmo, *FILES)


@pytest.fixture(scope="module")
def expected():
    """What the layer gives by itself, which the golden numbers hold."""
    return make()(TOKENS).numpy()


class Subclassed(keras.Model):
    def __init__(self, layer=None):
        super().__init__()
        self.elmo = layer or make()

    def call(self, tokens):
        return self.elmo(tokens)


class MadeInInit(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.elmo = make()

    def call(self, tokens):
        return self.elmo(tokens)

    def compute_output_shape(self, shape):
        return self.elmo.compute_output_shape(shape)


class MadeInBuild(MadeInInit):
    def __init__(self, **kwargs):
        keras.layers.Layer.__init__(self, **kwargs)

    def build(self, shape):
        self.elmo = make()


class WithoutShape(MadeInBuild):
    """Keras finds its shape in a scratch graph, where it builds it."""

    compute_output_shape = keras.layers.Layer.compute_output_shape


def functional(layer):
    tokens = keras.Input((None,), dtype="string")
    return keras.Model(tokens, layer(tokens))


def sequential(layer):
    return keras.Sequential([keras.Input((None,), dtype="string"), layer])


def predict(model):
    return model.predict(tf.data.Dataset.from_tensors(TOKENS), verbose=0)


def fit(model):
    """With a learning rate of 0: training changes nothing."""
    model.compile(keras.optimizers.SGD(0.0), vectors_only)
    model.fit(DATA, verbose=0, shuffle=False)
    return model(TOKENS)


def evaluate(model, expected):
    model.compile(loss=vectors_only)
    there = TOKENS.numpy() != b""
    found = model.evaluate(DATA, verbose=0)
    np.testing.assert_allclose(found, expected[there].mean(), atol=1e-6)
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


def by_hand_in_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = Subclassed()
    found = tf.function(lambda: strategy.run(model, (TOKENS,)))()
    first, second = strategy.experimental_local_results(found)
    np.testing.assert_array_equal(first, second)
    return first


def cloned(model):
    return keras.models.clone_model(model)(TOKENS)


def through_json():
    return keras.models.model_from_json(functional(make()).to_json())(TOKENS)


WAYS = {
    "functional": lambda: functional(make())(TOKENS),
    "sequential": lambda: sequential(make())(TOKENS),
    "subclassed": lambda: Subclassed()(TOKENS),
    "subclassed, predict": lambda: predict(Subclassed()),
    "subclassed, fit": lambda: fit(Subclassed()),
    "subclassed, evaluate": lambda: evaluate(Subclassed(), make()(TOKENS).numpy()),
    "subclassed, called on a symbol": lambda: functional(Subclassed())(TOKENS),
    "made in a layer's init": lambda: MadeInInit()(TOKENS),
    "made in a layer's init, on a symbol": lambda: functional(MadeInInit())(TOKENS),
    "made in a layer's build": lambda: MadeInBuild()(TOKENS),
    "made in a layer's build, on a symbol": lambda: functional(MadeInBuild())(TOKENS),
    "made in a layer's build, in a scratch graph": lambda: functional(WithoutShape())(TOKENS),
    "made in a layer's build, fit": lambda: fit(sequential(MadeInBuild())),
    "first called in a function": lambda: in_a_function(make()),
    "subclassed, in a function": lambda: in_a_function(Subclassed()),
    "made in a function": made_in_a_function,
    "first called in tf.data": lambda: in_a_pipeline(make()),
    "subclassed, in tf.data": lambda: in_a_pipeline(Subclassed()),
    "in another layer's loop": lambda: keras.layers.TimeDistributed(make())(TOKENS[:, None])[:, 0],
    "in replicas, called": lambda: in_replicas(lambda model: model(TOKENS)),
    "in replicas, predict": lambda: in_replicas(predict),
    "in replicas, by hand": by_hand_in_replicas,
    "clone": lambda: cloned(functional(make())),
    "clone of a model in a model": lambda: cloned(functional(functional(make()))),
    "clone of a Sequential": lambda: cloned(sequential(make())),
    "from a config": lambda: Elmo.from_config(make().get_config())(TOKENS),
    "through JSON": through_json,
    "deep copy": lambda: copy.deepcopy(make())(TOKENS),
    "pickle": lambda: pickle.loads(pickle.dumps(make()))(TOKENS),
    "stateful": lambda: functional(make(stateful=True))(TOKENS),
    "stateful, in a function": lambda: in_a_function(make(stateful=True)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_stored_weights(way, expected):
    np.testing.assert_allclose(WAYS[way](), expected, atol=1e-6)


def together(n, function):
    """Call a function from n threads that start at once."""
    start = threading.Barrier(n)

    def run(_):
        start.wait()
        return function()

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def test_threads_that_build_and_call_one_layer(expected):
    layer = make()
    for found in together(8, lambda: layer(TOKENS).numpy()):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len(layer.variables) == len(make_built().variables)


def test_threads_that_make_and_call_layers_of_their_own(expected):
    for found in together(8, lambda: Subclassed()(TOKENS).numpy()):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def make_built(**kwargs):
    layer = make(**kwargs)
    layer.build()
    return layer


COPIES = {
    "deep copy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}


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
def test_a_layer_without_weights_is_refused_until_they_are_loaded(files, in_graph, expected):
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
    np.testing.assert_allclose(run(TOKENS), expected, atol=1e-6)


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
