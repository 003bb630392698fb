import numpy as np
import pytest
from stored_files import make_zip
from tiny_runs import tiny_run

from bilm import load_scorer
from bilm.errors import DataError, OptionsError
from bilm.simple_elmo import ElmoModel

TEXTS = [["The", "cat", "sat"], [], ["a"], ["Привет", "!"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    archive = make_zip(folder / "model.zip", ["options.json", "model.hdf5"])
    model = ElmoModel()
    assert model.load(str(archive), max_batch_size=2, limit=10) == "The model is now loaded."
    return model


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_simple_elmo_vectors_are_one_padded_array(model, layers, stored_embedder):
    found = model.get_elmo_vectors(TEXTS, warmup=True, layers=layers)
    lead = (4, model.n_layers) if layers == "all" else (4,)
    assert found.shape == (*lead, 3, model.vector_size)
    embedded = stored_embedder.embed_batch(TEXTS, layers)
    for row, words, expected in zip(found, TEXTS, embedded, strict=True):
        np.testing.assert_allclose(row[..., : len(words), :], expected, atol=1e-6)
        assert not row[..., len(words) :, :].any()


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_simple_elmo_averages_have_length_one(model, layers):
    found = model.get_elmo_vector_average(TEXTS, layers=layers)
    vectors = model.get_elmo_vectors(TEXTS, layers=layers)
    for i, words in enumerate(TEXTS):
        if not words:
            assert not found[i].any()
            continue
        mean = vectors[i].sum(axis=-2) / len(words)
        np.testing.assert_allclose(found[i], mean / np.linalg.norm(mean), atol=1e-6)
        assert np.linalg.norm(found[i]) == pytest.approx(1)


def test_simple_elmo_averages_the_top_layer_on_request(model):
    top = ElmoModel()
    top.load(tiny_run("characters"), top=True)
    expected = top.get_elmo_vectors(TEXTS, layers="top")
    np.testing.assert_array_equal(top.get_elmo_vectors(TEXTS), expected)
    assert np.abs(top.get_elmo_vectors(TEXTS, layers="average") - expected).max() > 1e-3


def test_simple_elmo_substitutes_of_every_word():
    model = ElmoModel()
    model.load(tiny_run("characters"), full=True)
    scorer = load_scorer(tiny_run("characters"))
    words = [scorer.words[5], "not_in_it", scorer.words[7]]
    found = model.get_elmo_substitutes([" ".join(words), words, []], topn=3)
    assert found[0] == found[1] and found[2] == []
    assert [entry["word"] for entry in found[0]] == [words[0], "<UNK>", words[2]]
    score = next(scorer.score([words]))
    everything = model.get_elmo_substitutes([words], len(scorer.words), nodelimiters=False)[0]
    for i, entry in enumerate(everything):
        expected = {"forward": score.forward[i], "backward": score.backward[i + 1]}
        for direction, log in expected.items():
            names, logs = entry[direction]["candidate_words"], entry[direction]["logp"]
            assert sorted(names) == sorted(scorer.words) and logs == sorted(logs, reverse=True)
            assert logs[names.index(entry["word"])] == pytest.approx(log, abs=1e-3)
            best = [name for name in names if name not in ("<S>", "</S>")][:3]
            assert found[0][i][direction]["candidate_words"] == best


def test_simple_elmo_refuses_invalid_requests(model):
    with pytest.raises(OptionsError, match="full=True"):
        model.get_elmo_substitutes(["a b"])
    with pytest.raises(OptionsError, match="expected one of average, top, all"):
        model.get_elmo_vectors(TEXTS, layers="middle")
    with pytest.raises(OptionsError, match="no model is loaded"):
        ElmoModel().get_elmo_vectors(TEXTS)
    with pytest.raises(DataError, match="split a string"):
        model.get_elmo_vectors(["The cat sat"])
    for words in ({"river", "bank"}, {"river": 0, "bank": 1}):
        with pytest.raises(DataError, match=r"sentence 1 is .*sort a set"):
            model.get_elmo_vectors([["a"], words])
