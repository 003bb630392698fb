"""Checkpoints of the TensorFlow 1 reference: perplexity and dump, through the real commands."""

import json

import h5py
import numpy as np
import pytest
from command_runs import succeeded
from conftest import GOLDEN, golden_cases
from tiny_runs import load_run

from bilm.data.vocabulary import vocabulary_of
from bilm.export.hdf5 import dump_weights
from bilm.scoring.running_text import heldout_dataset, perplexity
from bilm.storage.hdf5 import datasets_of

HELDOUT, VOCABULARY = str(GOLDEN / "data" / "heldout" / "*"), str(GOLDEN / "data" / "vocab.txt")


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("folder", golden_cases("checkpoint"))
def test_golden_perplexity(folder, batch_size):
    expected = json.loads((folder / "expected.json").read_text())
    model = load_run(folder)
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    dataset = heldout_dataset(HELDOUT, vocab, model.options.bidirectional)
    found = perplexity(model, dataset, batch_size, drop_remainder=True)
    assert found.mean == pytest.approx(expected[f"perplexity_batch_size_{batch_size}"], rel=1e-4)


@pytest.mark.parametrize("name", [pytest.param("chars", marks=pytest.mark.slow), "tokens"])
def test_perplexity_of_a_sentence_in_pieces(name, monkeypatch, tmp_path):
    (tmp_path / "text").write_text("the cat sat on the mat . " * 30 + "\na dog\n\n.\n")
    model = load_run(GOLDEN / "checkpoint" / name)
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    dataset = heldout_dataset(tmp_path / "text", vocab, model.options.bidirectional)
    whole = perplexity(model, dataset, 3)
    monkeypatch.setattr("bilm.scoring.running_text.N_STEPS", 7)
    monkeypatch.setattr("bilm.scoring.running_text.PREDICTIONS_A_WINDOW", 1)
    pieces = perplexity(model, dataset, 3)
    assert pieces.n_predictions == whole.n_predictions == 216
    assert pieces.mean == pytest.approx(whole.mean, rel=1e-6)


@pytest.mark.parametrize("folder", golden_cases("checkpoint"))
def test_golden_run_test_command(folder, run_here):
    arguments = ["--test_prefix", HELDOUT, "--vocab_file", VOCABULARY, "--save_dir", folder]
    done = succeeded(run_here("run_test.py", *arguments, "--batch_size", "1"))
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("AVERAGE PERPLEXITY = ")
    expected = json.loads((folder / "expected.json").read_text())["perplexity_batch_size_1"]
    assert float(last.split("=")[1]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "folder", [c for c in golden_cases("checkpoint") if (c.values[0] / "weights.hdf5").exists()]
)
def test_golden_dump(folder, tmp_path):
    written = dump_weights(folder, tmp_path / "weights.hdf5")
    assert [path.name for path in written] == ["weights.hdf5", "options.json"]
    with h5py.File(written[0]) as found, h5py.File(folder / "weights.hdf5") as expected:
        names = set(datasets_of(expected))
        assert set(datasets_of(found)) == names
        for name in names:
            np.testing.assert_array_equal(found[name], expected[name])
    assert json.loads(written[1].read_text())["char_cnn"]["n_characters"] == 262
