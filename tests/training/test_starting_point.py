"""What a fine-tuning takes over from each kind of source, and what becomes of its softmax."""

import json
import shutil
from unittest import mock

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from stored_files import load_bilm, make_zip
from tiny_runs import HELDOUT, VOCABULARY, load_run, tiny_run
from tunings import (
    FILES,
    NEW_WORDS,
    STORED,
    TF1_CHARS,
    TF1_WORDS,
    WORDS,
    TakenError,
    assert_same,
    first_weights,
    heldout_perplexity,
    tune,
    write_new_words,
)

from bilm.errors import DataError, OptionsError
from bilm.export.hdf5 import dump_weights
from bilm.options.run_options import load_run_options
from bilm.storage.names import is_bilm, stored_values, stored_variables
from bilm.training import run as training
from bilm.training.devices import make_strategy
from bilm.training.starting_point import Source

# --- the sources ---


@pytest.mark.parametrize("variant", ["characters", "words", "shared_softmax"])
def test_finetune_from_a_run(variant, tmp_path, log):
    source = tiny_run(variant)
    found, expected = first_weights(source, tmp_path), stored_values(load_run(source))
    assert set(found) == set(expected)
    assert_same(found, expected)
    assert "weights and the softmax of 49 words loaded" in log.text
    assert "LSTM states are reset with probability 0.05; the source was trained with 0" in log.text


@pytest.mark.parametrize("source", [TF1_CHARS, TF1_WORDS])
def test_finetune_from_a_tf1_checkpoint(source, tmp_path):
    found = first_weights(source, tmp_path, vocab_file=VOCABULARY, heldout_prefix=HELDOUT)
    assert_same(found, stored_values(load_run(source)))
    record = json.loads((tmp_path / "finetuning.json").read_text())
    assert record["before"] == heldout_perplexity(source)._asdict()


@pytest.mark.parametrize("source", STORED, ids=lambda folder: folder.name)
def test_finetune_from_an_exported_model(source, tmp_path, log):
    files = source / "options.json", source / "weights.hdf5"
    assert json.loads(files[0].read_text())["char_cnn"]["n_characters"] == 262
    words = {"weight_file": files[1], "new_vocab_file": VOCABULARY}
    found = first_weights(files[0], tmp_path, **words)
    assert_same(found, stored_values(load_bilm(*files)))
    assert found["char_embed"].shape[0] == 261
    assert (found["softmax/b"] == 0).all()
    assert "the softmax is newly initialized: the source has none" in log.text


def test_finetune_from_an_archive_and_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    archive = make_zip(tmp_path / "model.zip", ["options.json", "weights.hdf5"])
    expected = stored_values(load_bilm(*FILES.values()))
    assert_same(first_weights(archive, tmp_path / "a", new_vocab_file=VOCABULARY), expected)
    folder = tmp_path / "model"
    folder.mkdir()
    for path in FILES.values():
        shutil.copy(path, folder)
    assert_same(first_weights(folder, tmp_path / "b", new_vocab_file=VOCABULARY), expected)


def test_finetune_from_an_exported_word_model(tmp_path):
    """Its table goes with its vocabulary; the softmax alone is new."""
    source = tiny_run("words")
    dump_weights(source, tmp_path / "model" / "weights.hdf5")
    found = first_weights(tmp_path / "model", tmp_path / "tuned", vocab_file=VOCABULARY)
    values = stored_values(load_run(source))
    assert_same(found, values, is_bilm)
    assert (found["softmax/W"] != values["softmax/W"]).any()


@pytest.mark.parametrize("variant", ["characters", "words", "shared_softmax"])
def test_finetune_from_an_export_with_softmax(variant, tmp_path, log):
    source = tiny_run(variant)
    dump_weights(source, tmp_path / "model", include_softmax=True)
    found = first_weights(tmp_path / "model", tmp_path / "tuned")
    assert_same(found, stored_values(load_run(source)))
    assert "weights and the softmax of 49 words loaded" in log.text
    assert (tmp_path / "tuned" / "vocab.txt").read_text() == VOCABULARY.read_text()


def test_finetune_sets_the_weights_of_every_replica(tmp_path):
    source = tiny_run("characters")
    expected = stored_values(load_run(source))

    def take(self, iterator, step):
        variable = stored_variables(self.model)["softmax/W"].value
        raise TakenError([v.numpy() for v in self.devices.local(variable)])

    two = make_strategy(n_gpus=0, cpu_replicas=2)
    with mock.patch.object(training.Trainer, "step", take), pytest.raises(TakenError) as taken:
        tune(source, tmp_path, strategy=two)
    (values,) = taken.value.args
    assert len(values) == 2
    for value in values:
        np.testing.assert_array_equal(value, expected["softmax/W"])


# --- vocabularies ---


@pytest.mark.parametrize("source", ["run", "export", "tf1"])
def test_finetune_with_a_new_vocabulary_keeps_rows_of_known_words(source, tmp_path, log):
    new_vocabulary = write_new_words(tmp_path)
    folder = given = TF1_CHARS if source == "tf1" else tiny_run("characters")
    if source == "export":
        given = tmp_path / "model"
        dump_weights(folder, given, include_softmax=True)
    words = {"vocab_file": VOCABULARY if source == "tf1" else None}
    new = first_weights(given, tmp_path / "a", new_vocab_file=new_vocabulary, **words)
    old = stored_values(load_run(folder))
    assert_same(new, old, is_bilm)
    for i, word in enumerate(NEW_WORDS):
        if word in WORDS:
            np.testing.assert_array_equal(new["softmax/W"][i], old["softmax/W"][WORDS.index(word)])
            assert new["softmax/b"][i] == old["softmax/b"][WORDS.index(word)]
        else:
            assert new["softmax/b"][i] == 0 and new["softmax/W"][i].any()
    n_shared = len(NEW_WORDS) - 2
    assert f"the rows of the {n_shared} of its {len(NEW_WORDS)} words that the source" in log.text


def test_finetune_with_unknown_source_words_has_a_new_softmax(tmp_path, log):
    new_vocabulary = write_new_words(tmp_path)
    found = first_weights(TF1_CHARS, tmp_path / "a", new_vocab_file=new_vocabulary)
    assert found["softmax/W"].shape[0] == len(NEW_WORDS)
    assert "the softmax is newly initialized: the source's vocabulary is missing" in log.text


def test_finetune_with_the_same_words_as_new_vocabulary(tmp_path):
    source = tiny_run("characters")
    found = first_weights(source, tmp_path, new_vocab_file=VOCABULARY)
    assert_same(found, stored_values(load_run(source)))


def test_finetune_refuses_words_other_than_the_softmax(tmp_path):
    dump_weights(tiny_run("characters"), tmp_path / "model", include_softmax=True)
    words = VOCABULARY.read_text().split()
    other = tmp_path / "words.txt"
    other.write_text("\n".join([*words[:-2], *words[:-3:-1]]) + "\n")
    with pytest.raises(DataError, match=r"other words than the source's own .*weights_softmax"):
        tune(tmp_path / "model", tmp_path / "tuned", vocab_file=other)


# --- options ---


def test_finetune_options_of_the_source(tmp_path):
    changes = {"learning_rate": 0.5, "dropout": 0.3, "state_reset_probability": 0.0}
    options = Source(tiny_run("characters")).run_options(changes).to_dict()
    stored = load_run_options(tiny_run("characters") / "options.json").to_dict()
    del stored["n_train_tokens"], stored["n_tokens_vocab"]
    assert options == stored | changes | {"n_epochs": 1}
    options = Source(**FILES).run_options({})  # nothing there but the shape
    assert (options.batch_size, options.unroll_steps, options.learning_rate) == (128, 20, 0.2)
    assert options.char_cnn.n_characters == 261


def test_finetune_refuses_unknown_options():
    with pytest.raises(
        OptionsError, match="lerning_rate: not an option that fine-tuning can change"
    ):
        Source(tiny_run("characters")).run_options({"lerning_rate": 0.1})


@pytest.mark.parametrize("warmup", [-5, True, "150", 1.5])
def test_finetune_refuses_an_invalid_warm_up_of_the_source(warmup, tmp_path):
    shutil.copytree(tiny_run("characters"), tmp_path / "run")
    path = tmp_path / "run" / "options.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warmup_steps": warmup}))
    with pytest.raises(OptionsError, match="warmup_steps"):
        Source(tmp_path / "run").run_options({})
