"""The evaluation, verdict and counts that are stored with runs and exports."""

import json
import shutil

import numpy as np
import pytest
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, tiny_options

import bilm
from bilm.commands.info import describe
from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import WeightsError
from bilm.export.hdf5 import dump_weights
from bilm.export.model_card import write_card
from bilm.scoring.ngrams import Ngrams, text_ids
from bilm.scoring.verdict import Measurement
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import open_model
from bilm.training import auto
from bilm.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdict") / "run"
    tiny = tiny_options(**WORDS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(auto, "options_for", lambda n: tiny.replace(n_train_tokens=n))
        bilm.train(
            TEXT, folder, vocab=VOCABULARY, heldout=HELDOUT, from_scratch=True, n_steps=9,
            log_steps=1, eval_steps=3, n_gpus=0,
        )  # fmt: skip
    return folder


def ids(pattern):
    return text_ids(resolve_shards(pattern), Vocabulary(VOCABULARY))


def test_run_and_export_store_the_counts_and_the_verdict(a_run, tmp_path):
    run = open_model(a_run)
    expected = Ngrams.of(ids(TEXT), Vocabulary(VOCABULARY))
    measured = RunFolder(a_run).read_measured()
    assert measured.compared.n_epochs == pytest.approx(9 * 10 / 358)
    assert measured.compared.n_useful == 12 and measured.compared.hours > 0
    assert measured.verdict.lines[-2] == "epochs read: 0.25 of 12 useful ones"

    written = dump_weights(run, tmp_path, include_softmax=True)
    for model in (run, open_model(tmp_path), open_model(a_run / "best")):
        stored = Ngrams.of_model(model)
        assert stored.n_words == expected.n_words
        np.testing.assert_array_equal(stored.counts, expected.counts)
        assert describe(model)["verdict"] == Measurement.of(model).verdict.lines != []
    assert Measurement.of(open_model(tmp_path)) == measured._replace(text=[])
    card = write_card(run, written).read_text(encoding="utf-8")
    assert f"| verdict | {'; '.join(measured.verdict.lines)} |" in card


def test_best_checkpoint_has_the_evaluation_of_its_step(a_run):
    best = RunFolder(a_run).find_best()
    measured = RunFolder(a_run / "best").read_measured()
    assert (measured.step, measured.perplexity.mean) == (best.record.step, best.record.best)


def test_end_of_the_log_is_the_verdict(a_run, log):
    RunFolder(a_run).log_end(9)
    lines = RunFolder(a_run / "best").read_measured().verdict.lines
    assert log.messages[1:-1] == lines and "expected" in lines[-3]


def test_model_without_a_record_has_no_verdict(a_run, tmp_path):
    folder = shutil.copytree(a_run, tmp_path / "run")
    (folder / "ngrams.hdf5").unlink()
    record = json.loads((folder / "heldout.json").read_text())
    for changed in (record | {"step": 5}, record | {"compared": None}, record | {"compared": 3}):
        (folder / "heldout.json").write_text(json.dumps(changed))
        model = open_model(folder)
        assert Ngrams.of_model(model) is None and describe(model)["verdict"] == []


@pytest.mark.parametrize("pairs", [[[0, 49, 1]], [[0, -1, 1]], [[1, 2]], [1]])
def test_counts_of_another_vocabulary_are_refused(a_run, tmp_path, pairs):
    folder = shutil.copytree(a_run, tmp_path / "run")
    save_hdf5(folder / "ngrams.hdf5", {"ngrams": np.array(pairs, np.int32)})
    with pytest.raises(WeightsError, match=r"hdf5: expected counts of pairs of the model's 49"):
        Ngrams.of_model(open_model(folder))
