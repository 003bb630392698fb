"""The exported layer, loaded in a process that knows neither bilm nor the weight file."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from conftest import golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("a SavedModel is TensorFlow's", allow_module_level=True)
import tensorflow as tf

from bilm import Elmo, export_saved_model

CASE = golden_cases("inference")[0].values[0]
LOAD = """
import sys, numpy as np, tensorflow as tf
module = tf.saved_model.load(sys.argv[1])
default = module.signatures["default"](tf.constant(["She saw  the bank", "", "café"]))
tokens = module.signatures["tokens"](
    tokens=tf.constant([["She", "saw", "the", "bank"], ["x"] * 4, ["café", "", "", ""]]),
    sequence_len=tf.constant([4, 0, 1]),
)
for name in default:
    np.testing.assert_array_equal(default[name], tokens[name])
np.savez(sys.argv[2], **{k: v.numpy() for k, v in default.items()})
assert "bilm" not in sys.modules
"""


def test_both_signatures_give_the_layers_vectors(tmp_path):
    layer = Elmo(CASE / "options.json", CASE / "weights.hdf5")
    layer.build()
    layer.mixes[0].weights_before_softmax.assign([0.3, -0.2, 0.1])
    export_saved_model(layer, tmp_path / "module")
    subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "module", tmp_path / "out.npz"],
        check=True,
        cwd=tmp_path,
    )
    found = np.load(tmp_path / "out.npz")
    tokens = tf.constant([["She", "saw", "the", "bank"], [""] * 4, ["café", "", "", ""]])
    vectors = layer(tokens).numpy()
    np.testing.assert_allclose(found["elmo"], vectors, atol=1e-6)
    np.testing.assert_allclose(found["default"][0], vectors[0].mean(axis=0), atol=1e-6)
    assert not found["default"][1].any()
    layers, mask, embeddings = layer.layers_of(tokens)
    np.testing.assert_allclose(
        found["word_emb"][mask.numpy()], embeddings.numpy()[mask.numpy()], atol=1e-6
    )
    for j in (1, 2):
        name = f"lstm_outputs{j}"
        np.testing.assert_allclose(
            found[name][mask.numpy()], layers.numpy()[:, j][mask.numpy()], atol=1e-6
        )


def test_what_cannot_be_exported_is_refused(tmp_path):
    layer = Elmo(CASE / "options.json", CASE / "weights.hdf5", stateful=True)
    with pytest.raises(ValueError, match="stateless"):
        export_saved_model(layer, tmp_path / "module")
