"""Fine-tuning: what it takes over from its source, measures and leaves, and what it refuses."""

import json
import shutil
from unittest import mock

import numpy as np
import pytest
from conftest import GOLDEN, golden_cases, others_slow
from stored_files import load_bilm, stored_values
from tiny_runs import HELDOUT, TEXT, VOCABULARY, before_last_save, load_run, tiny_run, weights_of

from bilm.data.vocabulary import vocabulary_of
from bilm.errors import BilmError, DataError
from bilm.export.hdf5 import dump_weights
from bilm.options.run_options import load_run_options
from bilm.scoring.running_text import heldout_dataset, perplexity
from bilm.tensors import is_bilm
from bilm.training.finetuning import Source, finetune
from bilm.training.step import Trainer

TF1_CHARS, TF1_WORDS = (GOLDEN / "checkpoint" / name for name in ("chars", "tokens"))
STORED = [case.values[0] for case in golden_cases("inference")]
FILES = {"model": STORED[0] / "options.json", "weights": STORED[0] / "weights.hdf5"}
WORDS = VOCABULARY.read_text(encoding="utf-8").splitlines()
# Words of the old vocabulary and others, in another order.
NEW_WORDS = [*WORDS[:3], "entirely", *WORDS[:30:-2], "new", *WORDS[5:12]]
SMALL = {"batch_size": 2, "unroll_steps": 5, "n_negative_samples_batch": 8}


@pytest.fixture
def new_vocabulary(tmp_path):
    """The file of the new vocabulary."""
    path = tmp_path / "new_words.txt"
    path.write_text("\n".join(NEW_WORDS) + "\n", encoding="utf-8")
    return path


def tune(model, folder, n_steps=1, **arguments):
    return finetune(model, TEXT, folder, n_steps=n_steps, n_gpus=0, **SMALL, **arguments)


class TakenError(Exception):
    """Carries weights out of a run that is not to take its first step."""


def first_weights(*arguments, values_of=lambda trainer: stored_values(trainer.model), **keywords):
    """Return the weights with which a fine-tuning goes into its first step, by stored name."""

    def take(self, iterator, step):
        assert step == 0
        raise TakenError(values_of(self))

    with mock.patch.object(Trainer, "step", take), pytest.raises(TakenError) as taken:
        tune(*arguments, **keywords)
    return taken.value.args[0]


def heldout_perplexity(source):
    model = load_run(source)
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    dataset = heldout_dataset(HELDOUT, vocab, model.options.bidirectional)
    return perplexity(model, dataset, SMALL["batch_size"])


def assert_same(found, expected, only=lambda name: True):
    names = [name for name in expected if only(name)]
    assert names and all(name in found for name in names)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize("kind", ["run", "export with softmax"])
@pytest.mark.parametrize("variant", ["characters", "words", "shared_softmax"])
def test_finetune_from_a_model_with_softmax(variant, kind, tmp_path, log):
    source = given = tiny_run(variant)
    if kind != "run":
        given = tmp_path / "model"
        dump_weights(source, given, include_softmax=True)
    found, expected = first_weights(given, tmp_path / "tuned"), weights_of(source)
    assert set(found) == set(expected)
    assert_same(found, expected)
    assert "weights and the softmax of 49 words loaded" in log.text
    assert (tmp_path / "tuned" / "vocab.txt").read_text() == VOCABULARY.read_text()


@pytest.mark.parametrize("source", [TF1_CHARS, TF1_WORDS])
def test_finetune_from_a_tf1_checkpoint(source, tmp_path):
    found = first_weights(source, tmp_path, vocab=VOCABULARY)
    assert_same(found, weights_of(source))


@pytest.mark.parametrize("source", others_slow(golden_cases("inference")))
def test_finetune_from_an_exported_model(source, tmp_path, log):
    files = source / "options.json", source / "weights.hdf5"
    assert json.loads(files[0].read_text())["char_cnn"]["n_characters"] == 262
    words = {"weights": files[1], "new_vocab": VOCABULARY}
    found = first_weights(files[0], tmp_path, **words)
    assert_same(found, stored_values(load_bilm(*files)))
    assert found["char_embed"].shape[0] == 261
    assert (found["softmax/b"] == 0).all()
    assert "the softmax is newly initialized: the source has none" in log.text


def test_finetune_from_an_exported_word_model(tmp_path):
    """Its table goes with its vocabulary; the softmax alone is new."""
    source = tiny_run("words")
    dump_weights(source, tmp_path / "model" / "weights.hdf5")
    found = first_weights(tmp_path / "model", tmp_path / "tuned", vocab=VOCABULARY)
    values = weights_of(source)
    assert_same(found, values, is_bilm)
    assert (found["softmax/W"] != values["softmax/W"]).any()


@pytest.mark.parametrize("source", ["run", "export", "tf1"])
def test_finetune_with_a_new_vocabulary_keeps_known_rows(source, tmp_path, log, new_vocabulary):
    folder = given = TF1_CHARS if source == "tf1" else tiny_run("characters")
    if source == "export":
        given = tmp_path / "model"
        dump_weights(folder, given, include_softmax=True)
    words = {"vocab": VOCABULARY if source == "tf1" else None}
    new = first_weights(given, tmp_path / "a", new_vocab=new_vocabulary, **words)
    old = weights_of(folder)
    assert_same(new, old, is_bilm)
    for i, word in enumerate(NEW_WORDS):
        if word in WORDS:
            np.testing.assert_array_equal(new["softmax/W"][i], old["softmax/W"][WORDS.index(word)])
            assert new["softmax/b"][i] == old["softmax/b"][WORDS.index(word)]
        else:
            assert new["softmax/b"][i] == 0 and new["softmax/W"][i].any()
    n_shared = len(NEW_WORDS) - 2
    assert f"the rows of the {n_shared} of its {len(NEW_WORDS)} words that the source" in log.text


def test_finetune_with_unknown_source_words_has_a_new_softmax(tmp_path, log, new_vocabulary):
    found = first_weights(TF1_CHARS, tmp_path / "a", new_vocab=new_vocabulary)
    assert found["softmax/W"].shape[0] == len(NEW_WORDS)
    assert "the softmax is newly initialized: the source's vocabulary is missing" in log.text


def test_finetune_options_of_the_source(tmp_path):
    changes = {"learning_rate": 0.5, "dropout": 0.3, "state_reset_probability": 0.0}
    options = Source(tiny_run("characters")).run_options(changes).to_dict()
    stored = load_run_options(tiny_run("characters") / "options.json").to_dict()
    del stored["n_train_tokens"], stored["n_tokens_vocab"], stored["training_text"]
    assert options == stored | changes | {"n_epochs": 1}
    options = Source(**FILES).run_options({})  # nothing there but the shape
    assert (options.batch_size, options.unroll_steps, options.learning_rate) == (128, 20, 0.2)
    assert options.char_cnn.n_characters == 261


def test_finetune_measures_before_and_after(tmp_path, log):
    source, other = tiny_run("forward_only"), tmp_path / "other.txt"
    result = tune(source, tmp_path / "tuned", heldout=HELDOUT)
    assert result[:2] == (1, True)
    assert result.before == heldout_perplexity(source)
    assert result.heldout == heldout_perplexity(tmp_path / "tuned") != result.before
    options = load_run_options(tmp_path / "tuned" / "options.json")
    assert options.model == load_run_options(source / "options.json").model
    assert (options.n_epochs, options.state_reset_probability) == (1, 0.05)
    weight_file, options_file = dump_weights(tmp_path / "tuned", tmp_path / "weights.hdf5")
    expected = weights_of(tmp_path / "tuned")
    assert_same(stored_values(load_bilm(options_file, weight_file)), expected, is_bilm)
    # Two held-out texts are not compared.
    other.write_text("a b c\n")
    log.clear()
    result = tune(source, tmp_path / "tuned", heldout=str(other))
    assert result.before is None and result.heldout.n_predictions == 4
    message = "the perplexity before the first step was measured on another held-out text"
    assert 0 <= log.text.find(message) < log.text.find("to export: ")  # at the start


@pytest.mark.parametrize(
    "kind", ["run", pytest.param("exported with its softmax", marks=pytest.mark.slow)]
)
def test_finetune_resume_is_bit_identical(kind, tmp_path, log, new_vocabulary):
    arguments = {"new_vocab": new_vocabulary, "heldout": HELDOUT}
    source = tiny_run("forward_only")
    if kind != "run":
        exported = tmp_path / "model" / "weights.hdf5"
        dump_weights(source, exported, True, VOCABULARY)
        source = exported.parent
        shutil.copy(VOCABULARY, source / "vocab.txt")
    folder, killed = tmp_path / "straight", tmp_path / "killed"
    straight = tune(source, folder, n_steps=6, checkpoint_steps=3, **arguments)
    before_last_save(folder, 6, killed)
    log.clear()
    again = tune(source, killed, n_steps=6, **arguments)
    assert again == straight._replace(model=again.model)
    assert "continuing at step 3 of 6" in log.text and "weights loaded" not in log.text
    assert_same(weights_of(killed), weights_of(folder))
    # A finished run says the same once more.
    again = tune(source, killed, n_steps=6, **arguments)
    assert again == straight._replace(model=again.model)


def fails(error, match, *arguments, **keywords):
    with pytest.raises(error, match=match):
        tune(*arguments, **keywords)


def test_finetune_without_softmax_or_vocabulary_is_refused(tmp_path):
    match = r"no softmax \(weights_softmax.hdf5\) beside the weights; pass the vocabulary of a new"
    fails(DataError, match, folder=tmp_path / "a", **FILES)
    fails(DataError, match, folder=tmp_path / "a", vocab=VOCABULARY, **FILES)
    assert not (tmp_path / "a").exists()


def test_finetune_checks_the_vocabulary_of_the_source(tmp_path, new_vocabulary):
    fails(DataError, r"vocab\.txt: file not found; pass the vocabulary", TF1_CHARS, tmp_path / "a")
    n = len(NEW_WORDS)
    match = rf"new_words\.txt: contains {n} words, but .* with 49"
    fails(DataError, match, TF1_CHARS, tmp_path / "a", vocab=new_vocabulary)
    fails(DataError, f"{n} words", tiny_run("words"), tmp_path / "a", vocab=new_vocabulary)
    new_vocabulary.write_text("\n".join([*WORDS[:-1], "other"]), encoding="utf-8")
    match = r"new_words\.txt: differs from the vocabulary that .* was trained with"
    fails(DataError, match, tiny_run("characters"), tmp_path / "a", vocab=new_vocabulary)
    dump_weights(tiny_run("characters"), tmp_path / "model", include_softmax=True)
    match = r"new_words\.txt: differs from .*weights_softmax.*if no vocabulary is given"
    fails(DataError, match, tmp_path / "model", tmp_path / "a", vocab=new_vocabulary)
    missing = tmp_path / "nowhere.txt"
    fails(DataError, "nowhere.txt: cannot be read", TF1_CHARS, tmp_path, vocab=missing)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("source", ["run", "tf1", "exported"])
def test_finetune_refuses_a_new_vocabulary_for_a_word_model(source, tmp_path, new_vocabulary):
    if source == "exported":
        dump_weights(tiny_run("words"), tmp_path / "model" / "weights.hdf5")
    folders = {"run": tiny_run("words"), "tf1": TF1_WORDS, "exported": tmp_path / "model"}
    match = "reads words of its own vocabulary and cannot be fine-tuned with another one"
    fails(DataError, match, folders[source], tmp_path / "a", new_vocab=new_vocabulary)


def test_finetune_refuses_the_folder_of_the_source(tmp_path):
    folder = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    before = sorted(folder.rglob("*"))
    fails(BilmError, "model and folder are the same", folder, tmp_path / "." / "run")
    assert sorted(folder.rglob("*")) == before
    fails(BilmError, "are the same", folder=STORED[0], new_vocab=VOCABULARY, **FILES)


def test_finetune_refuses_folders_of_other_runs(tmp_path, new_vocabulary):
    source = tiny_run("forward_only")
    shutil.copytree(source, tmp_path / "other")
    fails(BilmError, "contains a run that is not a fine-tuning", source, tmp_path / "other")
    shutil.copytree(source, tmp_path / "moved")
    tune(source, tmp_path / "tuned")
    match = "this folder's run started from .*, but .*moved was requested"
    fails(BilmError, match, tmp_path / "moved", tmp_path / "tuned", n_steps=2)
    words = {"new_vocab": new_vocabulary}
    fails(DataError, "run differs from", source, tmp_path / "tuned", 2, **words)
