"""`load_scorer`: scores of runs and of their exports equal the measured perplexity."""

import json

import numpy as np
import pytest
from conftest import GOLDEN, golden_cases
from scorers import MODELS, WORDS, check, export, model_of, one, perplexity_of, scorer_of
from stored_files import stored_values
from tiny_runs import load_run, tiny_run

import bilm
from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.scoring.running_text import heldout_dataset, perplexity
from bilm.scoring.scorer import load_scorer
from bilm.storage.hdf5 import save_hdf5

HELDOUT, VOCABULARY = GOLDEN / "data" / "heldout" / "*", GOLDEN / "data" / "vocab.txt"
CHECKPOINTS = golden_cases("checkpoint")


def heldout():
    return resolve_shards(HELDOUT).sentences()


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_scores_equal_the_measured_perplexity(folder):
    model = load_run(folder)
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    dataset = heldout_dataset(HELDOUT, vocab, model.options.bidirectional)
    n_sentences = len(list(heldout()))  # each is the first one of a row
    expected = perplexity(model, dataset, n_sentences)
    found = perplexity_of(bilm.score(heldout(), folder, vocab_file=VOCABULARY))
    assert found.n_predictions == expected.n_predictions
    assert found.directions == pytest.approx(expected.directions, rel=1e-5)
    assert found.mean == pytest.approx(expected.mean, rel=1e-5)


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_golden_scores_of_an_export_equal_those_of_its_run(folder, tmp_path):
    run = load_scorer(folder, VOCABULARY)
    weight_file, options_file, softmax_file = dump_weights(
        folder, tmp_path / "elmo.hdf5", include_softmax=True, vocab_file=VOCABULARY
    )
    export = load_scorer(options_file, weight_file=weight_file)
    assert export.words == run.words
    expected = list(run.score(heldout()))
    check(list(export.score(heldout())), expected)
    words = next(heldout())
    files = {"model": options_file, "weight_file": weight_file}
    other = softmax_file.rename(tmp_path / "other.hdf5")
    found = bilm.substitutes(words, 0, 3, **files, softmax_file=other)
    assert found == run.substitutes(words, 0, 3)
    with pytest.raises(WeightsError, match=r"expected .*elmo_softmax\.hdf5, which bilm export"):
        load_scorer(**files)
    with pytest.raises(WeightsError, match="dataset `vocabulary` is missing"):
        load_scorer(**files, softmax_file=weight_file)


def test_load_scorer_of_an_export_with_a_shared_table_in_one_direction(tmp_path):
    model = model_of("forward shared")
    values = stored_values(model)
    values["softmax/W"] = values["embedding"]
    softmax = {name: values.pop(name) for name in ("softmax/W", "softmax/b")}
    save_hdf5(tmp_path / "w.hdf5", values)
    words = np.array(WORDS, dtype=object)
    save_hdf5(tmp_path / "w_softmax.hdf5", {**softmax, "vocabulary": words})
    options = model.options.for_export()
    del options["bidirectional"]  # the weights tell
    (tmp_path / "options.json").write_text(json.dumps(options))
    export = load_scorer(tmp_path / "options.json", weight_file=tmp_path / "w.hdf5")
    found = one(export, ["cat", "unheard", "sat"])
    check([found], [one(scorer_of(model), ["cat", "unheard", "sat"])])
    assert found.backward is None
    assert found.mean == pytest.approx(found.total["forward"] / 4)
    assert export.substitutes(["cat"], 0)[1:] == (None, None, True)


def check_backends(numpy, keras_):
    """Check that two scorers give the same scores, descriptions and substitutes."""
    text = [["the", "unheard", "cat"], [], ["sat"] * 9, ["日本語", "on", "mat"]]
    for settings in ({}, {"context": 2}, {"n_likeliest": 3}):
        found, expected = (list(s.score(text, **settings)) for s in (numpy, keras_))
        for a, b in zip(found, expected, strict=True):
            check_logs(a.logs, b.logs)
            assert (a.predicted or {}).keys() == (b.predicted or {}).keys()
            for direction, places in (b.predicted or {}).items():
                for x, y in zip(a.predicted[direction], places, strict=True):
                    assert x.entropy == pytest.approx(y.entropy, abs=1e-4) and x.rank == y.rank
                    assert dict(x.likeliest) == pytest.approx(dict(y.likeliest), abs=1e-4)
    found, expected = (s.substitutes(text[0], 1, 4) for s in (numpy, keras_))
    for a, b in zip(found[:3], expected[:3], strict=True):
        assert dict(a or ()) == pytest.approx(dict(b or ()), abs=1e-4)


def check_logs(found, expected):
    assert found.keys() == expected.keys()
    for direction, logs in expected.items():
        np.testing.assert_allclose(found[direction], logs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_backends_score_alike(name, tmp_path):
    stored = export(model_of(name), tmp_path)
    check_backends(*(load_scorer(stored, backend=backend) for backend in ("numpy", "keras")))


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_backends_score_golden_checkpoints_alike(folder):
    numpy, keras_ = (load_scorer(folder, VOCABULARY, backend=b) for b in ("numpy", "keras"))
    check_backends(numpy, keras_)
    for a, b in zip(numpy.score(heldout()), keras_.score(heldout()), strict=True):
        check_logs(a.logs, b.logs)


def test_load_scorer_reads_a_named_checkpoint(monkeypatch):
    run = tiny_run("characters")
    (index,) = run.glob("model.ckpt-*.index")
    expected = load_scorer(run).substitutes(["the", "bank"], 1, 3)
    monkeypatch.chdir(run.parent)
    for name in (index.name, index, index.relative_to(run.parent)):
        assert load_scorer(run, weight_file=name).substitutes(["the", "bank"], 1, 3) == expected
