"""SavedModels of `Elmo`, loaded in processes without bilm and without the weight file."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from command_runs import output_of
from conftest import golden_cases

from bilm import Elmo, export_saved_model
from bilm.export.saved_model import hub_outputs

pytestmark = pytest.mark.clients

CASE = next(c.values[0] for c in golden_cases("inference") if c.id.endswith("1layer"))
TOKENS = tf.constant([["She", "saw", "the", "bank"], [""] * 4, ["café", "", "", ""]])
LOAD = """
import sys, numpy as np, tensorflow as tf
module = tf.saved_model.load("module")
sentences = ["She saw  the bank", "", "café"]
ids = [["She", "saw", "the", "bank"], ["x"] * 4, ["café", "", "", ""]]
default = module.signatures["default"](tf.constant(sentences))
tokens = module.signatures["tokens"](tokens=tf.constant(ids), sequence_len=tf.constant([4, 0, 1]))
for name in default:
    np.testing.assert_array_equal(default[name], tokens[name])
served = module.signatures["serving_default"](sentences=tf.constant(sentences))
none = module.signatures["serving_default"](sentences=tf.constant([], tf.string))
assert [len(value) for value in none.values()] == [0, 0, 0]
np.savez("module.npz", **{k: v.numpy() for k, v in (default | served).items()})

# As TensorFlow 1 and the C++ loader do it.
ids[1] = [""] * 4
for name, signature, feed in [
    ("module", "default", [sentences]),
    ("module", "tokens", [ids, [4, 0, 1]]),
    ("module", "serving_default", [sentences]),
    ("functional", "serving_default", [ids]),
    ("subclassed", "serving_default", [ids]),
]:
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], name)
        signature = loaded.signature_def[signature]
        names = sorted(signature.inputs, reverse=True)  # tokens before sequence_len
        feed = {signature.inputs[n].name: value for n, value in zip(names, feed, strict=True)}
        outputs = {k: v.name for k, v in signature.outputs.items()}
        found = session.run(outputs, feed)
    if name == "module":
        for key in found:
            np.testing.assert_allclose(found[key], (default | served)[key], atol=1e-6)
    else:
        np.save(name + ".npy", *found.values())
assert "bilm" not in sys.modules
"""


class Subclassed(keras.Model):
    input_dtype = "string"  # what Keras exports it for

    def __init__(self, model):
        super().__init__()
        self.elmo = Elmo(model)
        self.dense = keras.layers.Dense(3)

    def call(self, tokens):
        return self.dense(self.elmo(tokens))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with exports and the outputs that a new process computed, the layer, the models."""
    folder = tmp_path_factory.mktemp("exported")
    layer = Elmo(CASE)
    layer.build()
    weights = layer.mixes[0].weights_before_softmax
    weights.assign(np.linspace(0.3, -0.2, weights.shape[0]))
    export_saved_model(layer, folder / "module")
    tokens = keras.Input((None,), dtype="string")
    functional = keras.Model(tokens, keras.layers.Dense(3)(layer(tokens)))
    models = {"functional": functional, "subclassed": Subclassed(CASE)}
    models["subclassed"](TOKENS)
    for name, model in models.items():
        model.export(folder / name)
    output_of(LOAD, cwd=folder)
    return folder, layer, models


@pytest.mark.parametrize("name", ["functional", "subclassed"])
def test_exported_keras_models_equal_the_originals(exported, name):
    folder, _, models = exported
    np.testing.assert_allclose(np.load(folder / f"{name}.npy"), models[name](TOKENS), atol=1e-6)


def test_saved_model_hub_signatures_equal_the_layer(exported):
    folder, layer, _ = exported
    found = np.load(folder / "module.npz")
    for name, expected in hub_outputs(layer, TOKENS).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-6)


def test_saved_model_serving_default_returns_layers_and_mean(exported):
    folder, layer, _ = exported
    found = np.load(folder / "module.npz")
    layers, mask, _ = layer.layers_of(TOKENS)
    there = mask.numpy()[:, None, :, None]
    np.testing.assert_allclose(found["layers"], layers.numpy() * there, atol=1e-6)
    np.testing.assert_allclose(found["mean"], found["default"], atol=1e-6)
    assert found["n_tokens"].tolist() == [4, 0, 1]


def test_saved_model_splits_sentences_as_python_does(exported):
    """At each of the 29 characters of Unicode white space, and at no other."""
    serve = tf.saved_model.load(exported[0] / "module").signatures["serving_default"]
    others = "a_b", "a-b", "a\u200bb", "a\ufeffb", "a\u180eb", "日本語"
    sentences = [f"a{c}b" for c in map(chr, range(0x110000)) if c.isspace()]
    sentences += [*others, " a \u3000\xa0b\t", "\u2028", ""]
    for start in range(0, len(sentences), 4):  # the limit of this model
        batch = sentences[start : start + 4]
        counts = serve(sentences=tf.constant(batch))["n_tokens"].numpy().tolist()
        assert counts == [len(sentence.split()) for sentence in batch]
    joined, split = (tf.constant([text]) for text in ("The\u3000bank\xa0closed", "The bank closed"))
    found, expected = (serve(sentences=text)["layers"].numpy() for text in (joined, split))
    np.testing.assert_array_equal(found, expected)


def test_saved_model_skips_padding_between_tokens(exported):
    tokens = tf.saved_model.load(exported[0] / "module").signatures["tokens"]
    rows = tf.constant([["She", "", "saw", ""], ["", "", "She", "saw"], ["She", "saw", "", ""]])
    found = tokens(tokens=rows, sequence_len=tf.constant([4, 4, 4]))
    for name in ("word_emb", "lstm_outputs1", "elmo"):
        gap, left, end = found[name].numpy()
        np.testing.assert_allclose(gap[[0, 2]], end[:2], atol=1e-6)
        np.testing.assert_allclose(left[[2, 3]], end[:2], atol=1e-6)
        assert not gap[[1, 3]].any() and not left[:2].any()
    default = found["default"].numpy()
    np.testing.assert_allclose(default, default[:1].repeat(3, 0), atol=1e-6)


def test_export_saved_model_refuses_a_stateful_layer(tmp_path):
    layer = Elmo(CASE / "options.json", CASE / "weights.hdf5", stateful=True)
    with pytest.raises(ValueError, match="stateless"):
        export_saved_model(layer, tmp_path / "module")
