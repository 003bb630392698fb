"""Inputs, shapes, configs and XLA compilation of `Elmo`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elmo_models import FILES, TOKENS, functional, word_layer

from bilm import Batcher, BidirectionalLanguageModel, Elmo, TokenBatcher
from bilm.errors import DataError, OptionsError

SENTENCES = [["the", "bank"], ["café"]]
INPUTS = {
    "strings": (Elmo, TOKENS),
    "characters": (Elmo, Batcher(None, 50).batch_sentences(SENTENCES)),
    "words": (lambda *_, **kwargs: word_layer(**kwargs), np.array([[1, 3, 2, 0], [1, 4, 5, 2]])),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(
    ("combine", "keep"),
    [
        ("mix", True),
        ("concat", False),
        pytest.param("mix", False, marks=pytest.mark.slow),
        pytest.param("concat", True, marks=pytest.mark.slow),
    ],
)
def test_elmo_output_shape_equals_the_declared_shape(kind, keep, combine):
    make, batch = INPUTS[kind]
    layer = make(*FILES, keep_sentence_boundaries=keep, combine=combine, n_representations=2)
    for output, said in zip(layer(batch), layer.compute_output_shape(batch.shape), strict=True):
        assert output.shape == said
    symbol = keras.Input(batch.shape[1:], dtype="string" if kind == "strings" else "int32")
    assert layer(symbol)[0].shape == (None, *output.shape[1:])
    unknown = layer.compute_output_shape((None, None, *batch.shape[2:]))
    assert unknown[0] == (None, None, output.shape[-1])


@pytest.mark.parametrize("kind", [Elmo, BidirectionalLanguageModel])
def test_elmo_refuses_characters_of_another_width(kind):
    model = kind(*FILES)
    ids = Batcher(None, 20).batch_sentences(SENTENCES)
    with pytest.raises(DataError, match=r"ids have shape .*, 20\), but the model reads \(B, T, 50"):
        model(ids)
    batcher = model.batcher()
    np.testing.assert_array_equal(batcher.batch_sentences(SENTENCES), INPUTS["characters"][1])


def test_elmo_splits_sentences_at_blanks():
    """Strings of rank 1, like the signature `default` of the hub's module."""
    layer = Elmo(*FILES)
    sentences, tokens = tf.constant(["the bank", " caf\u00e9\u3000"]), TOKENS
    expected = layer(tokens).numpy()
    found = layer(sentences)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found._keras_mask, tokens != "")
    pooling = keras.layers.GlobalAveragePooling1D()
    models = [functional(layer, shape) for shape in ((), (None,))]
    found, expected = (
        keras.Model(model.input, pooling(model.output)).predict(inputs, verbose=0)
        for model, inputs in zip(models, (sentences, tokens), strict=True)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_elmo_refuses_whole_texts_as_words():
    layer, texts = Elmo(*FILES), tf.constant([["the bank"], ["a bank of the river"]])
    with pytest.raises(DataError, match="seems to be a whole text; pass texts as strings"):
        layer(texts)
    with pytest.raises(tf.errors.InvalidArgumentError, match="seems to be a whole text"):
        functional(layer, (1,)).predict(texts, verbose=0)
    assert layer(texts[:1]).shape == (1, 1, 20)  # one blank, as in "10 000"


@pytest.mark.parametrize("inputs", [SENTENCES, ["the bank", "café"], ("the",)])
def test_elmo_refuses_lists_of_strings_and_names_the_conversion(inputs):
    with pytest.raises(DataError, match=r"of strings, expected a string tensor: tf\.constant"):
        Elmo(*FILES)(inputs)


def test_elmo_batcher_of_a_word_model(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\n")
    layer = word_layer()
    assert isinstance(layer.batcher(path), TokenBatcher)
    with pytest.raises(DataError, match="reads words; give the vocabulary file"):
        layer.batcher()
    with pytest.raises(DataError, match=r"shape \(2, 4, 50\), but the model reads \(B, T\)"):
        layer(np.ones((2, 4, 50), "int32"))


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_elmo_accepts_ids_of_every_integer_type(kind):
    make, batch = INPUTS[kind]
    layer = make(*FILES)
    graph = tf.function(layer)
    for dtype in ("int64", "uint64", "uint32", "uint16", "int16", "uint8"):
        ids = batch % 256 if dtype == "uint8" else batch
        expected = layer(ids.astype("int32")).numpy()
        np.testing.assert_array_equal(layer(ids.astype(dtype)).numpy(), expected, dtype)
    found = graph(tf.constant(ids, dtype))  # the last type
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["characters", "words"])
@pytest.mark.parametrize("id_", [-1, 1000])
def test_elmo_refuses_ids_out_of_range(kind, id_):
    make, batch = INPUTS[kind]
    batch = batch.copy()
    batch.flat[1] = id_
    layer = make(*FILES)
    for ids in (batch, tf.constant(batch)):
        with pytest.raises(DataError, match=r"ids from -?\d+ to \d+, expected 0 to \d+"):
            layer(ids)


def test_elmo_refuses_inputs_of_another_type():
    message = "float32, expected strings or integer ids; set the type"
    with pytest.raises(DataError, match=message):
        functional(Elmo(*FILES), (None, 50), "float32")
    with pytest.raises(DataError, match=message):
        Elmo(*FILES)(np.ones((1, 3, 50), "float32"))
    with pytest.raises(DataError, match=message):  # without keras.Input, Keras assumes float32
        keras.Sequential([Elmo(*FILES)])(tf.constant([["the", "cat"]]))


@pytest.mark.parametrize("norm", [False, True])
def test_elmo_accepts_empty_batches_and_padding_only(norm):
    """No sentence, sentences of no token, nothing but padding."""
    layer = Elmo(*FILES, do_layer_norm=norm)
    graph = tf.function(layer, [tf.TensorSpec((None, None), tf.string)])
    for shape in [(0, 3), (0, 0), (2, 0), (2, 3)]:
        for run in (layer, graph):
            found = run(tf.fill(shape, ""))
            assert found.shape == (*shape, 20)
            assert not np.any(found)
        ids = np.zeros((shape[0], shape[1] + 2, 50), "int32")
        assert layer(ids).shape == found.shape


@pytest.mark.parametrize("model", ["/etc/passwd", "http://127.0.0.1:9/model.zip", "small"])
def test_elmo_from_config_opens_no_file(model, tmp_path, monkeypatch):
    """Through Keras' safe loading of a file that someone else has written."""
    layer = Elmo(*FILES)
    config = {**layer.get_config(), "options_file": model}
    monkeypatch.setattr(Elmo, "get_config", lambda self: config)
    functional(layer).save(tmp_path / "model.keras")
    with pytest.raises(OptionsError, match=r"options_file: found .*, expected"):
        keras.models.load_model(tmp_path / "model.keras")


@pytest.mark.slow
def test_elmo_compiled_by_xla_equals_the_eager_layer():
    layer, ids = Elmo(*FILES), INPUTS["characters"][1]
    found = tf.function(layer, jit_compile=True)(tf.constant(ids))
    np.testing.assert_allclose(found, layer(ids), atol=1e-6)
