"""Fine-tuning: what a run measures and leaves, how it continues, and what it refuses."""

import json
import shutil

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from command_runs import assert_fails
from stored_files import load_bilm
from tiny_runs import HELDOUT, TEXT, VOCABULARY, before_last_save, load_run, tiny_run
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
from bilm.export.hdf5 import dump_weights
from bilm.options.run_options import load_run_options
from bilm.storage.names import is_bilm, stored_values
from bilm.training.run import Saving

# --- the run ---


def test_finetune_measures_before_and_after(tmp_path):
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
def test_finetune_resume_is_bit_identical(kind, tmp_path, log):
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
    assert "continuing at step 3 of 6" in log.text and "weights loaded" not in log.text
    found, expected = (load_run(path) for path in (killed, folder))
    assert_same(stored_values(found), stored_values(expected))
    # A finished run says the same once more.
    assert tune(source, killed, n_steps=6, **arguments) == straight


def test_finetune_does_not_compare_two_heldout_texts(tmp_path, log):
    source, other = tiny_run("forward_only"), tmp_path / "other.txt"
    tune(source, tmp_path / "tuned", heldout_prefix=HELDOUT)
    record = tmp_path / "tuned" / "finetuning.json"
    older = json.loads(record.read_text())
    assert older.pop("text") and older["before"]
    other.write_text("a b c\n")
    result = tune(source, tmp_path / "tuned", heldout_prefix=str(other))
    assert result.before is None and result.after.n_predictions == 4
    assert "the perplexity before the first step was measured on another held-out text" in log.text
    assert json.loads(record.read_text())["before"] is None
    record.write_text(json.dumps(older))  # of before the text was noted
    assert tune(source, tmp_path / "tuned", heldout_prefix=str(other)).before is not None


# --- what is refused ---


def fails(error, match, *arguments, **keywords):
    with pytest.raises(error, match=match):
        tune(*arguments, **keywords)


def test_finetune_without_softmax_or_vocabulary_is_refused(tmp_path):
    match = r"no softmax \(weights_softmax.hdf5\) beside the weights; pass the vocabulary of a new"
    fails(DataError, match, save_dir=tmp_path / "a", **FILES)
    fails(DataError, match, save_dir=tmp_path / "a", vocab_file=VOCABULARY, **FILES)
    assert not (tmp_path / "a").exists()


def test_finetune_checks_the_vocabulary_of_the_source(tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    fails(
        DataError, r"vocab\.txt: file not found; pass the vocabulary of", TF1_CHARS, tmp_path / "a"
    )
    n = len(NEW_WORDS)
    match = rf"new_words\.txt: {n} words, but .*chars was trained with 49; pass a new vocabulary"
    fails(DataError, match, TF1_CHARS, tmp_path / "a", vocab_file=new_vocabulary)
    fails(DataError, f"{n} words", tiny_run("words"), tmp_path / "a", vocab_file=new_vocabulary)
    new_vocabulary.write_text("\n".join([*WORDS[:-1], "other"]), encoding="utf-8")
    match = r"new_words\.txt: other words than the source's own"
    fails(DataError, match, tiny_run("characters"), tmp_path / "a", vocab_file=new_vocabulary)
    missing = tmp_path / "nowhere.txt"
    fails(DataError, "nowhere.txt: cannot be read", TF1_CHARS, tmp_path, vocab_file=missing)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("source", ["run", "tf1", "exported"])
def test_finetune_refuses_a_new_vocabulary_for_a_word_model(source, tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    if source == "exported":
        dump_weights(tiny_run("words"), tmp_path / "model" / "weights.hdf5")
    folders = {"run": tiny_run("words"), "tf1": TF1_WORDS, "exported": tmp_path / "model"}
    match = "reads words of its own vocabulary and cannot be fine-tuned with another one"
    fails(DataError, match, folders[source], tmp_path / "a", new_vocab_file=new_vocabulary)


def test_finetune_refuses_the_folder_of_the_source(tmp_path):
    folder = shutil.copytree(tiny_run("characters"), tmp_path / "run")
    before = sorted(folder.rglob("*"))
    fails(BilmError, "source and save_dir are one folder", folder, tmp_path / "." / "run")
    assert sorted(folder.rglob("*")) == before
    fails(BilmError, "one folder", save_dir=STORED[0], new_vocab_file=VOCABULARY, **FILES)


def test_finetune_names_missing_files(tmp_path):
    fails(
        WeightsError,
        "nowhere: found neither a file or folder",
        tmp_path / "nowhere",
        tmp_path / "a",
    )
    (tmp_path / "empty").mkdir()
    match = r"found none, expected one options\.json, beside the weights or the checkpoints"
    fails(WeightsError, match, tmp_path / "empty", tmp_path / "a")
    options_file = STORED[0] / "options.json"
    fails(WeightsError, "also pass the weight file", options_file, tmp_path / "a")
    both = {"weight_file": tmp_path / "w.hdf5", "new_vocab_file": VOCABULARY}
    fails(BilmError, r"w\.hdf5: no such file", options_file, tmp_path / "a", **both)
    shutil.copytree(tiny_run("characters"), tmp_path / "run")
    next((tmp_path / "run").glob("*.data*")).unlink()
    fails(WeightsError, "not a whole checkpoint", tmp_path / "run", tmp_path / "a")
    assert not (tmp_path / "a" / "options.json").exists()


def test_finetune_refuses_folders_of_other_runs(tmp_path):
    new_vocabulary = write_new_words(tmp_path)
    source = tiny_run("forward_only")
    shutil.copytree(source, tmp_path / "other")
    fails(BilmError, "contains a run that is not a fine-tuning", source, tmp_path / "other")
    shutil.copytree(source, tmp_path / "moved")
    tune(source, tmp_path / "tuned")
    match = "this folder's run started from .*, but .*moved was requested"
    fails(BilmError, match, tmp_path / "moved", tmp_path / "tuned", n_steps=2)
    words = {"new_vocab_file": new_vocabulary}
    fails(DataError, "has another vocabulary than", source, tmp_path / "tuned", 2, **words)
    for text in ('{"source": ', "[]", '{"source": [], "before": 1, "after": null}'):
        (tmp_path / "tuned" / "finetuning.json").write_text(text)
        fails(BilmError, "not the record of a fine-tuning", source, tmp_path / "tuned", 2)


def test_finetune_refuses_options_out_of_range(tmp_path):
    match = r"options\.json, or the requested changes: dropout: found 1.5, expected a number in"
    fails(OptionsError, match, tiny_run("characters"), tmp_path, changes={"dropout": 1.5})


# --- the command ---


@pytest.mark.slow
def test_finetune_command(run_here, tmp_path):
    arguments = ["--model", tiny_run("characters"), "--input", TEXT, "--n_gpus=0"]
    arguments += ["--heldout", HELDOUT, "--n_steps=2", "--learning_rate=0.1"]
    done = run_here("bilm finetune", *arguments, "--output", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert after.startswith("PERPLEXITY AFTER = ")
    options = json.loads((tmp_path / "run" / "options.json").read_text())
    assert options["learning_rate"] == 0.1
    measured = ["--model", tiny_run("characters"), "--vocab", VOCABULARY]
    measured += ["--input", HELDOUT, "--batch_size=2"]
    figure = run_here("bilm test", *measured).stdout.splitlines()[-1]
    assert figure.removeprefix("AVERAGE ") == before.replace(" BEFORE", "")
    assert run_here("bilm finetune", *arguments, "--output", tmp_path / "run").stdout == done.stdout


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "nowhere"}, "nowhere: found neither a file or folder"),
        (
            dict(zip(("model", "weights"), FILES.values(), strict=True)),
            "pass the vocabulary of a new softmax with --new_vocab",
        ),
        ({"input": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"heldout": "nowhere/*"}, "nowhere/*: no file matches"),
        ({"new_vocab": "nowhere.txt"}, "nowhere.txt: cannot be read"),
        ({"output": TF1_CHARS, "model": TF1_CHARS}, "source and save_dir are one folder"),
    ],
)
def test_finetune_command_errors(changes, expected, run_here, tmp_path):
    values = {"model": tiny_run("characters"), "input": TEXT, "output": tmp_path / "run"}
    values |= changes
    arguments = [f"--{name}={value}" for name, value in values.items()]
    assert_fails(run_here("bilm finetune", *arguments), expected)
    assert not (tmp_path / "run").exists()
