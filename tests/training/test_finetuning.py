"""Fine-tuning: what a run measures and leaves, how it continues, and what it refuses."""

import json
import shutil

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from command_runs import assert_fails
from tiny_runs import HELDOUT, TEXT, VOCABULARY, before_last_save, tiny_run
from tunings import (
    FILES,
    NEW_WORDS,
    STORED,
    TF1_CHARS,
    TF1_WORDS,
    WORDS,
    assert_same,
    heldout_perplexity,
    tune,
    write_new_words,
)

from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.options import load_run_options
from bilm.storage.checkpoint import load_run
from bilm.storage.load import load_bilm
from bilm.storage.names import is_bilm, stored_values
from bilm.training.export import dump_weights
from bilm.training.run import Saving

# --- the run ---


def test_perplexities_and_the_folder(tmp_path):
    source = tiny_run("forward_only")
    result = tune(source, tmp_path, heldout_prefix=HELDOUT)
    assert result[:2] == (1, True)
    assert result.before == heldout_perplexity(source)
    assert result.after == heldout_perplexity(tmp_path) != result.before
    options = load_run_options(tmp_path / "options.json")
    assert options.model == load_run_options(source / "options.json").model
    assert (options.n_epochs, options.state_reset_probability) == (1, 0.05)
    weight_file, options_file = dump_weights(tmp_path, tmp_path / "model" / "weights.hdf5")
    assert_same(
        stored_values(load_bilm(options_file, weight_file)),
        stored_values(load_run(tmp_path)),
        is_bilm,
    )


@pytest.mark.parametrize("kind", ["run", "exported with its softmax"])
def test_continued_equals_straight(kind, tmp_path, log):
    new_vocabulary = write_new_words(tmp_path)
    arguments = {"new_vocab_file": new_vocabulary, "heldout_prefix": HELDOUT}
    source = tiny_run("forward_only")
    if kind != "run":
        exported = tmp_path / "model" / "weights.hdf5"
        dump_weights(source, exported, True, VOCABULARY)
        source = exported.parent
        shutil.copy(VOCABULARY, source / "vocab.txt")
    folder, killed = tmp_path / "straight", tmp_path / "killed"
    straight = tune(source, folder, n_steps=6, saving=Saving(steps=3), **arguments)
    before_last_save(folder, 6, killed)
    record = json.loads((killed / "finetuning.json").read_text())
    (killed / "finetuning.json").write_text(json.dumps(record | {"after": None}))
    log.clear()
    assert tune(source, killed, n_steps=6, **arguments) == straight
    assert "continuing at step 3 of 6" in log.text and "taken over" not in log.text
    found, expected = (load_run(path) for path in (killed, folder))
    assert_same(stored_values(found), stored_values(expected))
    # A finished run says the same once more.
    assert tune(source, killed, n_steps=6, **arguments) == straight


def test_perplexities_of_two_held_out_texts_are_not_compared(tmp_path, log):
    source, other = tiny_run("forward_only"), tmp_path / "other.txt"
    tune(source, tmp_path / "tuned", heldout_prefix=HELDOUT)
    record = tmp_path / "tuned" / "finetuning.json"
    older = json.loads(record.read_text())
    assert older.pop("text") and older["before"]
    other.write_text("a b c\n")
    result = tune(source, tmp_path / "tuned", heldout_prefix=str(other))
    assert result.before is None and result.after.n_predictions == 4
    assert "the perplexity before the first step was that of other held-out text" in log.text
    assert json.loads(record.read_text())["before"] is None
    record.write_text(json.dumps(older))  # of before the text was noted
    assert tune(source, tmp_path / "tuned", heldout_prefix=str(other)).before is not None


# --- what is refused ---


def fails(error, match, *arguments, **keywords):
    with pytest.raises(error, match=match):
        tune(*arguments, **keywords)


def test_no_softmax_and_no_vocabulary(tmp_path):
    match = r"no softmax \(weights_softmax.hdf5\) beside the weights; say which words a new one"
    fails(DataError, match, save_dir=tmp_path / "a", **FILES)
    fails(DataError, match, save_dir=tmp_path / "a", vocab_file=VOCABULARY, **FILES)
    assert not (tmp_path / "a").exists()


def test_vocabulary_of_the_source(tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    fails(DataError, r"vocab\.txt: no such file; give the vocabulary of", TF1_CHARS, tmp_path / "a")
    n = len(NEW_WORDS)
    match = rf"new_words\.txt: {n} words, but .*chars was trained with 49; a new vocabulary has"
    fails(DataError, match, TF1_CHARS, tmp_path / "a", vocab_file=new_vocabulary)
    fails(DataError, f"{n} words", tiny_run("words"), tmp_path / "a", vocab_file=new_vocabulary)
    new_vocabulary.write_text("\n".join([*WORDS[:-1], "other"]), encoding="utf-8")
    match = r"new_words\.txt: other words than the source's own"
    fails(DataError, match, tiny_run("characters"), tmp_path / "a", vocab_file=new_vocabulary)
    missing = tmp_path / "nowhere.txt"
    fails(DataError, "nowhere.txt: cannot be read", TF1_CHARS, tmp_path, vocab_file=missing)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("source", ["run", "tf1", "exported"])
def test_other_words_for_a_model_that_reads_words(source, tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    if source == "exported":
        dump_weights(tiny_run("words"), tmp_path / "model" / "weights.hdf5")
    folders = {"run": tiny_run("words"), "tf1": TF1_WORDS, "exported": tmp_path / "model"}
    match = "reads words, by a table for its own vocabulary; it cannot be tuned with another"
    fails(DataError, match, folders[source], tmp_path / "a", new_vocab_file=new_vocabulary)


def test_one_folder(tmp_path):
    folder = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    before = sorted(folder.rglob("*"))
    fails(BilmError, "source and save_dir are one folder", folder, tmp_path / "." / "run")
    assert sorted(folder.rglob("*")) == before
    fails(BilmError, "one folder", save_dir=STORED[0], new_vocab_file=VOCABULARY, **FILES)


def test_missing_files(tmp_path):
    fails(WeightsError, "nowhere: no such file or folder", tmp_path / "nowhere", tmp_path / "a")
    (tmp_path / "empty").mkdir()
    match = r"found none, expected one options\.json, with weights or the checkpoints of a run"
    fails(WeightsError, match, tmp_path / "empty", tmp_path / "a")
    options_file = STORED[0] / "options.json"
    fails(WeightsError, "the weight file has to be given too", options_file, tmp_path / "a")
    both = {"weight_file": tmp_path / "w.hdf5", "new_vocab_file": VOCABULARY}
    fails(BilmError, r"w\.hdf5: no such file", options_file, tmp_path / "a", **both)
    shutil.copytree(tiny_run("characters"), tmp_path / "run")
    next((tmp_path / "run").glob("*.data*")).unlink()
    fails(WeightsError, "not a whole checkpoint", tmp_path / "run", tmp_path / "a")
    assert not (tmp_path / "a" / "options.json").exists()


def test_folders_of_other_runs(tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    source = tiny_run("forward_only")
    shutil.copytree(source, tmp_path / "other")
    fails(BilmError, "holds a run that is no fine-tuning", source, tmp_path / "other")
    shutil.copytree(source, tmp_path / "moved")
    tune(source, tmp_path / "tuned")
    match = "this folder's run started from .*, but .*moved was requested"
    fails(BilmError, match, tmp_path / "moved", tmp_path / "tuned", n_steps=2)
    words = {"new_vocab_file": new_vocabulary}
    fails(DataError, "has another vocabulary than", source, tmp_path / "tuned", 2, **words)
    for text in ('{"source": ', "[]", '{"source": [], "before": 1, "after": null}'):
        (tmp_path / "tuned" / "finetuning.json").write_text(text)
        fails(BilmError, "not the record of a fine-tuning", source, tmp_path / "tuned", 2)


def test_options_out_of_range(tmp_path):
    match = r"options\.json, or what is requested: dropout: found 1.5, expected a number in"
    fails(OptionsError, match, tiny_run("characters"), tmp_path, changes={"dropout": 1.5})


# --- the command ---


@pytest.mark.slow
def test_command(run_here, tmp_path):
    arguments = ["--source", tiny_run("characters"), "--train_prefix", TEXT, "--n_gpus=0"]
    arguments += ["--heldout_prefix", HELDOUT, "--n_steps=2", "--learning_rate=0.1"]
    done = run_here("finetune.py", *arguments, "--save_dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert after.startswith("PERPLEXITY AFTER = ")
    options = json.loads((tmp_path / "run" / "options.json").read_text())
    assert options["learning_rate"] == 0.1
    measured = ["--save_dir", tiny_run("characters"), "--vocab_file", VOCABULARY]
    measured += ["--test_prefix", HELDOUT, "--batch_size=2"]
    figure = run_here("run_test.py", *measured).stdout.splitlines()[-1]
    assert figure.removeprefix("AVERAGE ") == before.replace(" BEFORE", "")
    assert run_here("finetune.py", *arguments, "--save_dir", tmp_path / "run").stdout == done.stdout


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"source": "nowhere"}, "nowhere: no such file or folder"),
        (FILES, "(--new_vocab; it may be the vocabulary"),
        ({"train_prefix": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"heldout_prefix": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"new_vocab_file": "nowhere.txt"}, "nowhere.txt: cannot be read"),
        ({"gpus": "one"}, "--gpus=one: expected different numbers, such as 0,1"),
        ({"save_dir": TF1_CHARS, "source": TF1_CHARS}, "source and save_dir are one folder"),
    ],
)
def test_command_fails(changes, expected, run_here, tmp_path):
    values = {"source": tiny_run("characters"), "train_prefix": TEXT, "save_dir": tmp_path / "run"}
    values |= changes
    arguments = [f"--{name}={value}" for name, value in values.items()]
    assert_fails(run_here("finetune.py", *arguments), expected)
    assert not (tmp_path / "run").exists()
