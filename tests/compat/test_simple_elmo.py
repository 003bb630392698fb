import shutil
import zipfile

import numpy as np
import pytest
from stored_files import OPTIONS, WEIGHTS
from tiny_runs import VOCABULARY, tiny_run

from bilm import ElmoEmbedder, load_scorer
from bilm.errors import DataError, OptionsError
from bilm.export.hdf5 import dump_weights
from bilm.simple_elmo import ElmoModel

TEXTS = [["The", "cat", "sat"], [], ["a"], ["Привет", "!"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    archive = tmp_path_factory.mktemp("archive") / "model.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(OPTIONS, "options.json")
        file.write(WEIGHTS, "model.hdf5")
    model = ElmoModel()
    assert model.load(str(archive), max_batch_size=2, limit=10) == "The model is now loaded."
    return model


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    run = tiny_run("characters")
    dump_weights(run, folder / "model.hdf5", include_softmax=True, vocab_file=run / "vocab.txt")
    return folder


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_simple_elmo_vectors_are_one_padded_array(model, layers):
    found = model.get_elmo_vectors(TEXTS, warmup=True, layers=layers)
    lead = (4, model.n_layers) if layers == "all" else (4,)
    assert found.shape == (*lead, 3, model.vector_size)
    for row, words, expected in zip(
        found, TEXTS, ElmoEmbedder(OPTIONS, WEIGHTS).embed_batch(TEXTS, layers), strict=True
    ):
        np.testing.assert_allclose(row[..., : len(words), :], expected, atol=1e-6)
        assert not row[..., len(words) :, :].any()


def test_simple_elmo_argument_top_of_older_versions_selects_the_default_layers(model, tmp_path):
    shutil.copy(OPTIONS, tmp_path / "options.json")
    shutil.copy(WEIGHTS, tmp_path / "model.hdf5")
    for top, layers in ((True, "top"), (False, "average")):
        older = ElmoModel()
        older.load(str(tmp_path), top=top)
        for method in ("get_elmo_vectors", "get_elmo_vector_average"):
            expected = getattr(model, method)(TEXTS, layers=layers)
            np.testing.assert_array_equal(getattr(older, method)(TEXTS), expected)


def test_simple_elmo_vectors_are_repeatable(model):
    first = model.get_elmo_vectors(TEXTS)
    np.testing.assert_array_equal(model.get_elmo_vectors(TEXTS, warmup=False), first)
    assert model.get_elmo_vectors([]).shape == (0, 0, model.vector_size)


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


@pytest.mark.parametrize("source", ["export", "run"])
def test_simple_elmo_substitutes_of_every_word(export, source):
    folder = export if source == "export" else tiny_run("characters")
    model = ElmoModel()
    model.load(folder, full=True)
    scorer = load_scorer(tiny_run("characters"))
    words = [scorer.words[5], "not_in_it", scorer.words[7]]
    found = model.get_elmo_substitutes([" ".join(words), words, []], topn=3)
    assert found[0] == found[1] and found[2] == []
    assert [entry["word"] for entry in found[0]] == [words[0], "<UNK>", words[2]]
    score = next(scorer.score([words]))
    everything = model.get_elmo_substitutes([words], len(scorer.words), nodelimiters=False)[0]
    for i, entry in enumerate(everything):
        for direction, expected in (
            ("forward", score.forward[i]),
            ("backward", score.backward[i + 1]),
        ):
            names = entry[direction]["candidate_words"]
            logs = entry[direction]["logp"]
            assert sorted(names) == sorted(scorer.words) and logs == sorted(logs, reverse=True)
            assert logs[names.index(entry["word"])] == pytest.approx(expected, abs=1e-3)
            best = [name for name in names if name not in ("<S>", "</S>")][:3]
            assert found[0][i][direction]["candidate_words"] == best


def test_simple_elmo_substitutes_do_not_depend_on_other_positions():
    scorer = load_scorer(tiny_run("characters"))
    words = [scorer.words[i] for i in (4, 5, 6, 7)]
    alone = [next(scorer.log_probabilities(words, [i])) for i in range(4)]
    for one, together in zip(alone, scorer.log_probabilities(words, range(4)), strict=True):
        for direction in one:
            np.testing.assert_allclose(one[direction], together[direction], atol=1e-5)
            assert np.exp(one[direction]).sum() == pytest.approx(1, abs=1e-4)


def test_simple_elmo_refuses_invalid_requests(model):
    with pytest.raises(OptionsError, match="expected one of average, top, all"):
        model.get_elmo_vectors(TEXTS, layers="middle")
    with pytest.raises(OptionsError, match="full=True"):
        model.get_elmo_substitutes(["a b"])
    with pytest.raises(OptionsError, match="no model is loaded"):
        ElmoModel().get_elmo_vectors(TEXTS)
    with pytest.raises(DataError, match="split a string"):
        model.get_elmo_vectors(["The cat sat"])


def test_simple_elmo_refuses_words_and_sentences_without_an_order(model, export):
    full = ElmoModel()
    full.load(export, full=True)
    for embed in (
        model.get_elmo_vectors, model.get_elmo_vector_average, full.get_elmo_substitutes
    ):  # fmt: skip
        for words in ({"river", "bank"}, {"river": 0, "bank": 1}):
            with pytest.raises(DataError, match=r"sentence 1 is .*sort a set"):
                embed([["a"], words])
        with pytest.raises(DataError, match=r"order|a list of sentences"):
            embed({("a", "b")})
    with pytest.raises(DataError, match="the batch is 'a b'"):
        full.get_elmo_substitutes("a b")


def test_simple_elmo_loads_a_run_with_its_vocabulary():
    model = ElmoModel()
    model.load(tiny_run("characters"), full=True)
    n_words = len(VOCABULARY.read_text(encoding="utf-8").split())
    assert (
        len(model.get_elmo_substitutes(["a"], n_words, False)[0][0]["forward"]["logp"]) == n_words
    )
    assert model.get_elmo_vectors(TEXTS).shape == (4, 3, model.vector_size)
