"""HDF5 export: the vectors of the run, under the names that other readers expect."""

import dataclasses

import h5py
import numpy as np
import pytest
from stored_files import check_vectors, load_bilm, stored_values
from tiny_runs import VARIANTS, VOCABULARY, load_run, tiny_options, tiny_run

from bilm.activations import ACTIVATIONS
from bilm.data.model_ids import Batcher, TokenBatcher
from bilm.data.vocabulary import vocabulary_of
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError, WeightsError
from bilm.export.hdf5 import dump_weights, missing_for_allennlp
from bilm.options.run_options import load_run_options
from bilm.storage.hdf5 import datasets_of
from bilm.storage.stored_weights import StoredWeights

LSTM = ("W_0", "B", "W_P_0")
SENTENCE = ["money", "w3", "日本語", "unheard-of", "Москва"]


def trained_vectors(model):
    """The vectors in the graph that was trained: ids as they are, each direction in its order."""
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    encode = vocab.encode if model.options.char_cnn is None else vocab.encode_chars
    forward = model.encoder(encode(SENTENCE, split=False)[None])
    backward = model.encoder(encode(SENTENCE[::-1], reverse=True, split=False)[None])
    vectors = {"forward": forward, "backward": backward}
    outputs, _ = model.windows({d: vectors[d] for d in model.directions}, model.zero_state(1))
    layers = [[forward, *outputs["forward"]]]
    if "backward" in outputs:
        layers.append([layer[:, ::-1] for layer in (backward, *outputs["backward"])])
    return np.concatenate([np.stack(direction, axis=1) for direction in layers], axis=-1)


def stored_vectors(model):
    if model.options.char_cnn is None:
        batcher = TokenBatcher(VOCABULARY)
    else:
        batcher = Batcher(None, model.options.char_cnn.max_characters_per_token)
    return model(batcher.batch_sentences([SENTENCE]))["layers"]


# Other tests export models of one layer, without projections, and with a shared table.
QUICK = ("characters", "words", "forward_only", "plain")


@pytest.fixture(
    scope="module",
    params=[pytest.param(v, marks=() if v in QUICK else pytest.mark.slow) for v in VARIANTS],
)
def exported(request, tmp_path_factory):
    """A run, and the files of its export."""
    run = tiny_run(request.param)
    own = (run / "options.json").read_bytes()
    written = dump_weights(run, tmp_path_factory.mktemp("export") / "weights.hdf5")
    assert (run / "options.json").read_bytes() == own
    return run, *written


def test_exported_model_has_the_vectors_of_the_run(exported):
    run, weight_file, options_file = exported
    model = load_run(run)
    expected = trained_vectors(model)
    assert expected.shape[:3] == (1, model.options.lstm.n_layers + 1, len(SENTENCE) + 2)
    found = stored_vectors(load_bilm(options_file, weight_file))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(stored_vectors(load_bilm(run)), found)  # a run is a model too


@pytest.mark.parametrize("variant", ["characters", "shared_softmax"])
def test_export_softmax_with_vocabulary(variant, tmp_path):
    run = tiny_run(variant)
    written = dump_weights(run, tmp_path / "elmo.hdf5", True, VOCABULARY)
    assert [path.name for path in written] == ["elmo.hdf5", "options.json", "elmo_softmax.hdf5"]
    values = stored_values(load_run(run))
    with h5py.File(written[2]) as file:
        assert set(datasets_of(file)) == {"softmax/W", "softmax/b", "vocabulary", "ngrams"}
        expected = values.get("softmax/W", values.get("embedding"))
        np.testing.assert_array_equal(file["softmax/W"], expected)
        np.testing.assert_array_equal(file["softmax/b"], values["softmax/b"])
        words = file["vocabulary"].asstr()[...].tolist()
    assert words == VOCABULARY.read_text(encoding="utf-8").splitlines()
    assert "日本語" in words
    with h5py.File(written[0]) as file:
        assert not any(name.startswith("softmax") for name in set(datasets_of(file)))


def test_export_of_a_model_that_reads_words_contains_its_vocabulary(tmp_path):
    dump_weights(tiny_run("words"), tmp_path / "out")
    sentences = [["the", "cat"], ["unheard-of"]]
    found = ElmoEmbedder(tmp_path / "out").embed_batch(sentences)
    expected = ElmoEmbedder(tiny_run("words")).embed_batch(sentences)
    check_vectors(found, expected, 1e-6)
    dump_weights(tiny_run("words"), tmp_path / "out")
    (tmp_path / "out" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nx\n")
    with pytest.raises(DataError, match=r"vocab\.txt: contains other words than"):
        dump_weights(tiny_run("words"), tmp_path / "out")


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("characters", "it spells words in 10 characters, not 50"),
        ("words", "it reads words, not characters"),
        ("forward_only", "it reads forwards only"),
        ("no_cnn_projection", "its token encoder has no CNN_proj"),
        ("no_projection", "its LSTM has no projection W_P_0"),
        ("plain", "it spells words in 12 characters, not 50; its layers have no skip connections"),
    ],
)
def test_allennlp_cannot_load_models_that_it_does_not_know(variant, reason):
    assert reason in "; ".join(missing_for_allennlp(tiny_options(**VARIANTS[variant]).model))


def test_export_warns_if_allennlp_cannot_load_the_model(tmp_path, caplog):
    dump_weights(tiny_run("words"), tmp_path / "weights.hdf5")
    (warning,) = [m for m in caplog.messages if "AllenNLP" in m]
    assert "cannot load this model (it reads words, not characters" in warning


def test_allennlp_cannot_load_an_activation_other_than_its_two(monkeypatch):
    monkeypatch.setitem(ACTIVATIONS, "sigmoid", ACTIVATIONS["tanh"])
    options = load_run_options("small").model
    cnn = dataclasses.replace(options.char_cnn, activation="sigmoid")
    assert missing_for_allennlp(options) == []
    (reason,) = missing_for_allennlp(options.replace(char_cnn=cnn))
    assert reason == "the activation of its character CNN is sigmoid"


def test_export_that_reads_back_differently_is_not_kept(tmp_path, monkeypatch):
    values = StoredWeights.values

    def values_read_wrongly(self):
        for name, value in values(self):
            is_wrong = name == "CNN_proj/b_proj" and not self.has_softmax
            yield name, value + 1e-7 if is_wrong else value

    run = tiny_run("characters")
    (tmp_path / "weights.hdf5").write_text("earlier content")
    monkeypatch.setattr(StoredWeights, "values", values_read_wrongly)
    with pytest.raises(WeightsError, match="CNN_proj/b_proj differs after it was written and read"):
        dump_weights(run, tmp_path / "weights.hdf5", True, VOCABULARY)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.hdf5"]
    assert (tmp_path / "weights.hdf5").read_text() == "earlier content"


def test_exported_names_of_one_layer(tmp_path):
    """Written as existing readers expect; the reference's own spelling loads as well."""
    weight_file, options_file = dump_weights(tiny_run("one_layer"), tmp_path / "weights.hdf5")
    expected = stored_vectors(load_bilm(options_file, weight_file))
    with h5py.File(weight_file, "r+") as file:
        for direction in (0, 1):
            rnn = file[f"RNN_{direction}/RNN"]
            assert set(datasets_of(rnn)) == {f"MultiRNNCell/Cell0/LSTMCell/{n}" for n in LSTM}
            rnn.move("MultiRNNCell/Cell0/LSTMCell", "LSTMCell")
            del rnn["MultiRNNCell"]
        assert "RNN_0/RNN/LSTMCell/W_0" in file
    found = stored_vectors(load_bilm(options_file, weight_file))
    np.testing.assert_array_equal(found, expected)
