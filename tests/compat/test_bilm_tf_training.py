"""Scripts written for bilm-tf run unchanged: see `tests/reference_scripts`."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from command_runs import run_words, succeeded
from stored_files import OPTIONS, WEIGHTS
from tiny_runs import HELDOUT, N_CHARACTERS, TEXT, VOCABULARY, tiny_options, tiny_run

import bilm.data
import bilm.elmo
import bilm.model
import bilm.training
from bilm import ElmoEmbedder
from bilm.errors import BilmError, DataError, InvalidNumberOfCharacters, OptionsError, WeightsError

SCRIPTS = Path(__file__).parents[1] / "reference_scripts"


def script(name, *arguments):
    return succeeded(run_words([sys.executable, SCRIPTS / f"{name}.py", *arguments]))


@pytest.mark.slow
def test_scripts_train_continue_measure_and_export(tmp_path):
    run, text = tmp_path / "run", ("--vocab_file", VOCABULARY, "--train_prefix", TEXT)
    done = script("train", "--save_dir", run, *text, "--n_gpus", 2, "--n_epochs", 1)
    assert "no GPU was found: the CPU is split into 2 devices (n_gpus)" in done.stderr
    assert "step 5 of 5" in done.stderr  # 400 tokens in windows of 2 x 4 x 10
    done = script("restart", "--save_dir", run, *text, "--n_gpus", 2, "--n_epochs", 2)
    assert "continuing at step 5 of 10" in done.stderr
    text = "--vocab_file", VOCABULARY, "--test_prefix", HELDOUT
    done = script("test", "--save_dir", run, *text, "--batch_size", 1)
    assert 1 < float(re.search(r"^AVERAGE PERPLEXITY = ([\d.]+)$", done.stdout, re.M)[1]) < 1e4
    script("dump", "--save_dir", run, "--outfile", tmp_path / "model" / "weights.hdf5")
    assert ElmoEmbedder(tmp_path / "model").embed_sentence(["a", "b"]).shape == (3, 2, 16)


def test_reference_names_exist():
    for module, names in {
        bilm.data: "Vocabulary UnicodeCharsVocabulary Batcher TokenBatcher LMDataset "
        "BidirectionalLMDataset InvalidNumberOfCharacters",
        bilm.model: "BidirectionalLanguageModel dump_token_embeddings dump_bilm_embeddings",
        bilm.elmo: "weight_layers",
        bilm.training: "train test load_vocab load_options_latest_checkpoint dump_weights",
    }.items():
        for name in names.split():
            assert callable(getattr(module, name)), name


def test_reference_placeholder_is_refused():
    model = bilm.model.BidirectionalLanguageModel(OPTIONS, WEIGHTS)
    with tf.Graph().as_default():
        ids = tf.compat.v1.placeholder("int32", (None, None, 50))
        with pytest.raises(DataError, match="placeholders and sessions are not supported"):
            model(ids)


def dataset(test=False, **how):
    vocab = bilm.training.load_vocab(VOCABULARY, N_CHARACTERS)
    return bilm.data.BidirectionalLMDataset(HELDOUT if test else TEXT, vocab, test=test, **how)


def options(**changes):
    return {**tiny_options().to_dict(), "n_train_tokens": 40, **changes}


def test_reference_script_options(tmp_path, caplog):
    values = options(n_epochs=np.int64(1), lstm=dict(options()["lstm"], dim=np.int32(8)), mine=3)
    result = bilm.training.train(values, dataset(shuffle_on_load=True), 1, tmp_path, tmp_path)
    assert result.finished and result.step == 4
    assert "unknown keys are ignored: mine" in caplog.text
    stored, path = bilm.training.load_options_latest_checkpoint(tmp_path)
    assert stored["n_train_tokens"] == 40 and path == f"{tmp_path}/model.ckpt-4"


def test_reference_arguments_that_do_not_fit_are_refused(tmp_path):
    def train(data=None, restart=None, **changes):
        data = data or dataset()
        bilm.training.train(options(**changes), data, 1, tmp_path, tmp_path, restart)

    with pytest.raises(OptionsError, match=r"n_tokens_vocab: found 7, expected \d+, the number of"):
        train(n_tokens_vocab=7)
    with pytest.raises(InvalidNumberOfCharacters, match="n_characters: found 262"):
        train(char_cnn=dict(options()["char_cnn"], n_characters=262))
    with pytest.raises(DataError, match="test=True; training requires"):
        train(dataset(test=True))
    vocab = bilm.training.load_vocab(VOCABULARY, N_CHARACTERS)
    with pytest.raises(DataError, match="reverse=True and test=False; training requires"):
        train(bilm.data.LMDataset(TEXT, vocab, reverse=True))
    path = str(tiny_run("characters") / "model.ckpt-2")
    with pytest.raises(DataError, match=r"data is LMDataset .* the directions forward"):
        bilm.training.test({}, path, bilm.data.LMDataset(HELDOUT, vocab, test=True))
    words = bilm.training.load_vocab(VOCABULARY)
    with pytest.raises(DataError, match="load_vocab has loaded with the options of the model"):
        bilm.training.test({}, path, bilm.data.BidirectionalLMDataset(HELDOUT, words, test=True))
    with pytest.raises(DataError, match="data has test=False; evaluation requires test=True"):
        bilm.training.test({}, str(tiny_run("characters") / "model.ckpt-2"), dataset())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["", ".index"])
def test_reference_test_measures_the_named_checkpoint(ending, capsys):
    run, text = tiny_run("characters"), dataset(test=True)
    found = bilm.training.test({}, f"{run}/model.ckpt-2{ending}", text, batch_size=2)
    assert found > 1 and capsys.readouterr().out == f"AVERAGE PERPLEXITY = {found}\n"
    with pytest.raises(WeightsError, match=r"model\.ckpt-7\.index: file not found; expected a ch"):
        bilm.training.test({}, f"{run}/model.ckpt-7{ending}", text)


def test_reference_restart_requires_the_latest_checkpoint(tmp_path, caplog):
    bilm.training.train(options(n_epochs=1), dataset(shuffle_on_load=True), 1, tmp_path, tmp_path)
    stored, _ = bilm.training.load_options_latest_checkpoint(tmp_path)
    with pytest.raises(BilmError, match=r"ckpt-77: expected .*ckpt-4, since a run continues"):
        given = {**stored, "n_epochs": 2}, dataset(shuffle_on_load=True), 1, tmp_path, tmp_path
        bilm.training.train(*given, restart_ckpt_file=f"{tmp_path}/model.ckpt-77")
    assert "training_text" in stored and "unknown keys" not in caplog.text
