"""`bilm.compat.tfhub`: the outputs of the modules themselves, and programs in circulation."""

import hashlib
import shutil
import tarfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, golden_cases
from moved_scripts import run_moved
from odd_server import Handler, serving

from bilm.compat import tfhub as hub
from bilm.errors import DataError, OptionsError, WeightsError
from bilm.storage.finding import download, registry

CASES = golden_cases("tfhub") if (GOLDEN / "tfhub").is_dir() else []
pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(not CASES, reason="the folder of golden files has no modules"),
]
LIMIT = {"atol": 1e-5, "rtol": 0}
SENTENCES = ["the cat is on the mat", "dogs bark"]


@pytest.fixture
def archive():
    archives = (case.values[0] / "module.tar.gz" for case in CASES)
    return next(archive for archive in archives if archive.exists())


def test_script_for_tensorflow_hub_runs_with_another_import(archive, monkeypatch):
    move = "import tensorflow_hub as hub", "from bilm.compat import tfhub as hub"
    names = run_moved(monkeypatch, "hub_similarity.py", *move, archive, *SENTENCES)
    np.testing.assert_allclose(np.diag(names["similarities"]), 1, rtol=1e-6)
    module, (first, second) = names["module"], names["words"]
    means = [first.mean(axis=0), second[:2].mean(axis=0)]
    np.testing.assert_allclose(module(SENTENCES), means, **LIMIT)
    trained = names["classifier"].layers[0]
    assert len(trained.trainable_variables) == 2  # the weights of the layers, and gamma
    assert trained.elmo.mixes[0].gamma.numpy() != module.elmo.mixes[0].gamma.numpy()


def test_keras_layer_of_tfhub_in_a_saved_model(archive, tmp_path):
    tokens, lengths = keras.Input((None,), dtype="string"), keras.Input((), dtype="int32")
    how = {"signature": "tokens", "output_key": "lstm_outputs1", "output_shape": [8]}
    layer = hub.KerasLayer(archive, **how)
    model = keras.Model([tokens, lengths], layer({"tokens": tokens, "sequence_len": lengths}))
    assert model.trainable_variables == []
    given = [tf.constant([["a", "b"], ["c", ""]]), tf.constant([2, 1])]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(given), model(given))


def test_tfhub_refuses_inputs_of_other_shapes_and_unknown_names(archive):
    module, tokens = hub.load(archive), {"signature": "tokens"}
    with pytest.raises(DataError, match=r"'default': found .*'strings': 2.* expected .*: 1"):
        module([["a"]])
    with pytest.raises(DataError, match=r"'tokens': found .*expected .*'sequence_len': 1"):
        module([["a"]], **tokens)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        module({"tokens": [["a"], ["b"]], "sequence_len": [1]}, **tokens)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_len exceeds"):
        module({"tokens": [["a"]], "sequence_len": [2]}, **tokens)
    with pytest.raises(OptionsError, match="signature is 'words', expected one of default, tokens"):
        module(["a"], signature="words")
    with pytest.raises(OptionsError, match="output_key is 'top', expected one of word_emb"):
        hub.KerasLayer(archive, output_key="top")(["a"])


def test_tfhub_handles_are_opened_from_the_cache_or_an_address(archive, tmp_path, monkeypatch):
    handle = "https://www.kaggle.com/models/google/elmo/TensorFlow1/elmo/3"
    cached = tmp_path / "hub" / hashlib.sha1(handle.encode()).hexdigest()
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(cached.parent))
    monkeypatch.setattr(download, "RETRIES", 0)
    served = tmp_path / "served"
    with serving(served) as address:
        monkeypatch.setattr(registry, "TFHUB", f"{address}/hub")
        monkeypatch.setattr(registry, "TFHUB_FILES", address)
        with pytest.raises(WeightsError, match=r"no address works.*English models: small, .*pubm"):
            hub.load("https://tfhub.dev/google/elmo/3")
        module = "/google/elmo/3"
        assert Handler.asked == [f"/hub{module}?tf-hub-format=compressed", f"{module}.tar.gz"]
        (served / "google" / "elmo").mkdir(parents=True)
        shutil.copy(archive, served / "google" / "elmo" / "3.tar.gz")
        expected = hub.load(handle)(SENTENCES)
    with tarfile.open(archive) as file:
        file.extractall(cached, filter="data")
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "empty"))
    np.testing.assert_array_equal(hub.load(handle)(SENTENCES), expected)
