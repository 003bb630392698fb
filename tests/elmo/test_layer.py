"""The downstream layer: golden mixes, masks, gradients, saving."""

import json
import os
import shutil

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import golden_cases, others_slow
from elmo_models import FILES, make

from bilm import Batcher, Elmo
from bilm.data.alphabets import ByteAlphabet
from bilm.layers.tensorflow.spelling import spelled

SENTENCES = [["She", "saw", "日本語", "x" * 70, "</S>"], [], ["<S>", "café", "😀"], ["one"]]


def padded(sentences):
    width = max(map(len, sentences))
    return tf.constant([s + [""] * (width - len(s)) for s in sentences])


@pytest.mark.parametrize("max_characters", [3, 5, 50])
def test_string_spelling_equals_batcher(max_characters):
    expected = Batcher(None, max_characters).batch_sentences(SENTENCES)
    ids = spelled(padded(SENTENCES), ByteAlphabet(max_characters))
    np.testing.assert_array_equal(ids, expected)


# The mixes of the other cases are those of `weight_layers`, too.
GOLDEN_MIXES = [
    pytest.param(*case.values, name, id=f"{case.id}-{name}", marks=case.marks)
    for name, choose in {"mix_plain": list, "mix_norm": others_slow, "mix_top": others_slow}.items()
    for case in choose(golden_cases("inference"))
]


@pytest.mark.parametrize(("folder", "name"), GOLDEN_MIXES)
def test_golden_elmo(folder, name):
    sentences = json.loads((folder / "batches.json").read_text())
    with h5py.File(folder / "expected.hdf5") as expected:
        l2_coef = float(expected.attrs["l2_coef"])
        layer = Elmo(
            folder / "options.json",
            folder / "weights.hdf5",
            combine="top" if name == "mix_top" else "mix",
            do_layer_norm=name == "mix_norm",
            l2_coef=None if name == "mix_top" else l2_coef,
            stateful=True,
        )
        layer.build()
        if name == "mix_top":
            layer.gammas[0].assign(expected.attrs["mix_gamma"])
        else:
            layer.mixes[0].gamma.assign(expected.attrs["mix_gamma"])
            layer.mixes[0].weights_before_softmax.assign(expected.attrs["mix_W"])
        run = tf.function(layer, [tf.TensorSpec((None, None), tf.string)])
        for i, batch in enumerate(sentences):
            group = expected[f"batch_{i}"]
            found = run(padded(batch)).numpy()
            mask = group["mask"][...]
            atol = norm_tolerance(group, expected.attrs) if name == "mix_norm" else 1e-5
            np.testing.assert_allclose(found[mask], group[name][...][mask], atol=atol)
            if name == "mix_plain":
                found = layer.losses[0]
                np.testing.assert_allclose(found, group["l2_plain"][()], rtol=1e-5)


def norm_tolerance(group, attributes):
    """What 1e-5 on the layers becomes where normalisation magnifies a layer, 2e-5 at least.

    A layer that clips hold near 0.1 is magnified about tenfold; there the last bit of a token's
    vector, 2e-6 at a value of 20, already exceeds 2e-5.
    """
    layers, mask = group["lm_embeddings"][...], group["mask"][...]
    weights = np.exp(attributes["mix_W"]) / np.exp(attributes["mix_W"]).sum()
    deviations = np.array([layers[:, j][mask].std() for j in range(layers.shape[1])])
    return max(2e-5, 1e-5 * attributes["mix_gamma"] * (weights / deviations).max())


def test_elmo_reset_states():
    layer = make(stateful=True)
    first = layer(padded(SENTENCES)).numpy()
    assert np.abs(layer(padded(SENTENCES)).numpy() - first).max() > 1e-4
    layer.reset_states()
    np.testing.assert_array_equal(layer(padded(SENTENCES)).numpy(), first)


def test_elmo_keep_sentence_boundaries():
    layer = make(combine="concat")
    kept = make(combine="concat", keep_sentence_boundaries=True)
    ids = Batcher(None, 50).batch_sentences(SENTENCES)
    from_strings = layer(padded(SENTENCES))
    np.testing.assert_array_equal(from_strings, layer(ids))
    assert from_strings.shape == (4, 5, 2 * 20)
    whole = kept(padded(SENTENCES))
    np.testing.assert_array_equal(whole, kept(ids))
    np.testing.assert_allclose(whole[0, 1:-1], from_strings[0], atol=1e-6)


@pytest.mark.parametrize("keep", [False, True])
def test_elmo_keras_mask(keep):
    layer = make(n_representations=2, keep_sentence_boundaries=keep)
    lengths = np.array([len(s) for s in SENTENCES]) + (2 if keep else 0)
    for inputs in (Batcher(None, 50).batch_sentences(SENTENCES), padded(SENTENCES)):
        for output in layer(inputs):
            expected = np.arange(output.shape[1]) < lengths[:, None]
            np.testing.assert_array_equal(output._keras_mask, expected)
            assert not output.numpy()[~expected].any()


@pytest.mark.parametrize("trainable", [False, True])
def test_elmo_gradients_reach_trainable_variables_only(trainable):
    layer = make(trainable_bilm=trainable)
    layer.build()
    n_mix = 2
    assert len(layer.trainable_variables) == n_mix + trainable * len(layer.bilm.weights)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(padded(SENTENCES), training=True) ** 2)
    variables = [v.value for v in layer.variables]
    gradients = tape.gradient(total, variables)
    reached = [g is not None for g in gradients]
    assert sum(reached) == (len(variables) if trainable else n_mix)


def downstream(layer, shape=(None,), dtype="string"):
    tokens = keras.Input(shape, dtype=dtype)
    pooled = keras.layers.GlobalAveragePooling1D()(layer(tokens))
    return keras.Model(tokens, keras.layers.Dense(1, activation="sigmoid")(pooled))


def test_elmo_fit_trains_the_mix_only():
    keras.utils.set_random_seed(1)
    model = downstream(make(l2_coef=1e-3, dropout=0.1))
    elmo = model.layers[1]
    before = [w.numpy() for w in elmo.bilm.weights]
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
    sentences = [sentence for sentence in SENTENCES if sentence]
    data = tf.data.Dataset.from_tensors((padded(sentences), tf.constant([1.0, 0, 1])))
    untrained = model.evaluate(data, verbose=0)  # without dropout, unlike the losses of `fit`
    model.fit(data, epochs=5, verbose=0, shuffle=False)
    assert model.evaluate(data, verbose=0) < untrained
    assert all(np.array_equal(a, w.numpy()) for a, w in zip(before, elmo.bilm.weights, strict=True))
    assert elmo.mixes[0].gamma.numpy() != 1


def test_elmo_saved_keras_model_needs_no_weight_file(tmp_path):
    """Trained, saved and exported; loaded when the files of the stored model are gone."""
    files = [shutil.copy(path, tmp_path) for path in FILES]
    model = downstream(Elmo(*files))
    model.layers[1].mixes[0].gamma.assign(1.7)
    tokens = padded(SENTENCES)
    expected = model(tokens).numpy()
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "exported", verbose=False)
    for path in files:
        os.remove(path)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(tokens), expected, atol=1e-6)
    exported = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(exported.serve(tokens), expected, atol=1e-6)
    assert str(tmp_path) not in json.dumps(model.get_config(), default=str)


def test_elmo_refuses_unknown_arguments():
    with pytest.raises(ValueError, match="combine is 'sum'"):
        make(combine="sum")
    with pytest.raises(ValueError, match="do_layer_norm is 'batch', expected one of True, False"):
        make(do_layer_norm="batch")
    assert make(do_layer_norm=np.True_).mixes[0].do_layer_norm
    for contradiction in ({"n_representations": 1}, {"do_layer_norm": True}):
        with pytest.raises(ValueError, match="combine is 'stored', which takes the number"):
            make(combine="stored", **contradiction)


def test_elmo_trainable_false_is_kept(tmp_path):
    """Frozen before it is built, by an argument, after loading, and released again."""
    layer = make(trainable_bilm=True)
    layer.trainable = False
    model = downstream(layer)
    assert len(model.trainable_weights) == 2
    model.save(tmp_path / "model.keras")
    assert len(keras.models.load_model(tmp_path / "model.keras").trainable_weights) == 2
    frozen = make(trainable_bilm=True, trainable=False)
    frozen.build()
    assert not frozen.trainable_weights
    mixing = make()
    mixing.build()
    mixing.trainable = False
    mixing.trainable = True
    assert len(mixing.trainable_weights) == 2
