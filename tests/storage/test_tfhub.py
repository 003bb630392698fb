"""TensorFlow Hub modules against the numbers of the modules themselves, and their files."""

import json
import shutil
import tarfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, golden_cases

from bilm import Elmo, ElmoEmbedder
from bilm.commands.info import find_problems
from bilm.errors import OptionsError, WeightsError
from bilm.storage.formats.tfhub import TfHub
from bilm.storage.stored_model import open_model

if keras.backend.backend() != "tensorflow":
    pytest.skip("modules are read with TensorFlow", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("cache")
CASES = golden_cases("tfhub") if (GOLDEN / "tfhub").is_dir() else []
LIMIT = 1e-5


def module_in(case):
    """The archive or folder of a golden case."""
    archive = case / "module.tar.gz"
    return archive if archive.exists() else case / "module"


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def folder(case, tmp_path):
    """A copy of the module as a folder."""
    source, target = module_in(case), tmp_path / "module"
    if source.is_dir():
        return shutil.copytree(source, target)
    with tarfile.open(source) as file:
        file.extractall(target, filter="data")
    return target


def sentences_of(case):
    return json.loads((case / "sentences.json").read_text(encoding="utf-8"))


def test_golden_tfhub_layers_and_options(case, log):
    model = open_model(module_in(case))
    expected = json.loads((case / "options.json").read_text())
    found = model.options.for_export()
    assert {key: found[key] for key in ("char_cnn", "lstm")} == {
        key: expected[key] for key in ("char_cnn", "lstm")
    }
    assert "sizes are derived from the shapes" in log.text
    vectors = ElmoEmbedder(model).embed_batch(sentences_of(case))
    with h5py.File(case / "expected.hdf5") as file:
        for k, ours in enumerate(vectors):
            np.testing.assert_allclose(ours, file[f"sentence_{k}"], atol=LIMIT, rtol=0)


def test_golden_tfhub_mix(case):
    elmo = Elmo(module_in(case), mix="stored")
    batcher = elmo.batcher()
    with h5py.File(case / "expected.hdf5") as file:
        for k, words in enumerate(sentences_of(case)):
            output = elmo(batcher.batch_sentences([words]).astype("int32"))
            ours = keras.ops.convert_to_numpy(output)[0]
            np.testing.assert_allclose(ours, file[f"mix_{k}"], atol=LIMIT, rtol=0)


def test_golden_tfhub_outputs_of_the_module_itself(case, folder):
    """As docs/migration.md describes them. `default` of DeepPavlov is the mean of `elmo` over the
    words, without gamma; that of Google's published module is not known exactly."""
    signatures = tf.saved_model.load(str(folder), tags=[]).signatures
    sentences = [["the", "cat", "is", "on", "the", "mat"], ["dogs", "bark"]]
    tokens = tf.constant([sentences[0], sentences[1] + [""] * 4])
    expected = signatures["tokens"](tokens=tokens, sequence_len=tf.constant([6, 2]))
    again = signatures["default"](tf.constant([" ".join(words) for words in sentences]))
    found = Elmo(module_in(case), mix="stored")(tokens)
    embedder = ElmoEmbedder(module_in(case))
    for k, words in enumerate(sentences):
        n = len(words)
        for outputs in (expected, again):
            np.testing.assert_allclose(found[k, :n], outputs["elmo"][k, :n], atol=LIMIT)
        layers = embedder.embed_sentence(words)
        width = layers.shape[2] // 2
        np.testing.assert_allclose(layers[0, :, :width], expected["word_emb"][k, :n], atol=LIMIT)
        for j in range(1, len(layers)):
            lstm = expected[f"lstm_outputs{j}"][k, :n]
            np.testing.assert_allclose(layers[j], lstm, atol=LIMIT)
        if "version" in expected:  # of DeepPavlov
            mean = np.mean(found[k, :n], axis=0) / open_model(module_in(case)).mixes[0].gamma
            np.testing.assert_allclose(mean, expected["default"][k], atol=LIMIT)


def test_golden_tfhub_conversion(case):
    if not (case / "converted.hdf5").exists():
        pytest.skip("the conversion is not part of this folder of golden files")
    model = open_model(module_in(case))
    with h5py.File(case / "converted.hdf5") as file, model.tensors.opened() as read:
        names = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        assert set(names) == model.tensors.names
        for name in names:
            np.testing.assert_array_equal(np.asarray(read(name)), file[name])


def test_folders_and_given_options(case, folder, tmp_path):
    found = open_model(folder)
    assert type(found.format) is TfHub and find_problems(found) == []
    assert type(open_model(tmp_path).format) is TfHub  # inside one folder
    options = json.loads((case / "options.json").read_text())
    options["lstm"]["cell_clip"] = 0.125
    (tmp_path / "given.json").write_text(json.dumps(options))
    for weights in (folder, module_in(case)):
        given = open_model(tmp_path / "given.json", weights)
        assert given.options.lstm.cell_clip == 0.125
        assert given.digest != found.digest
    with pytest.raises(OptionsError, match="do not contain a softmax"):
        found.require_softmax("score sentences")


def test_damaged_modules_are_refused(folder):
    graph, index = folder / "saved_model.pb", folder / "variables" / "variables.index"
    content = graph.read_bytes()
    graph.write_bytes(content[: len(content) // 2])
    with pytest.raises(WeightsError, match=r"saved_model\.pb: truncated or damaged"):
        open_model(folder).options  # noqa: B018
    graph.write_bytes(b"")
    with pytest.raises(WeightsError, match=r"saved_model\.pb: contains no graph"):
        open_model(folder).options  # noqa: B018
    graph.write_bytes(content)
    for data in folder.glob("variables/variables.data-*"):
        data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="not a whole checkpoint"):
        open_model(folder).build()
    index.write_bytes(index.read_bytes()[:40])
    with pytest.raises(WeightsError, match="variables: not a whole checkpoint"):
        open_model(folder).options  # noqa: B018
