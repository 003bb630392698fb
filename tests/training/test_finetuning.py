"""Fine-tuning: what a run takes over from each kind of source, and what it refuses."""

import json
import shutil
from unittest import mock

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from command_runs import assert_fails
from conftest import GOLDEN, golden_cases
from stored_files import make_zip
from tiny_runs import HELDOUT, TEXT, VOCABULARY, tiny_run

from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.evaluation import heldout_dataset, perplexity
from bilm.options import load_run_options
from bilm.storage.checkpoint import load_run, model_vocabulary
from bilm.storage.load import load_bilm
from bilm.storage.names import is_bilm, stored_values, stored_variables
from bilm.training import run as training
from bilm.training.devices import make_strategy
from bilm.training.export import dump_weights
from bilm.training.finetuning import finetune
from bilm.training.starting_point import Source

TF1_CHARS, TF1_WORDS = (GOLDEN / "checkpoint" / name for name in ("chars", "tokens"))
STORED = [case.values[0] for case in golden_cases("inference")]
FILES = {"source": STORED[0] / "options.json", "weight_file": STORED[0] / "weights.hdf5"}
WORDS = VOCABULARY.read_text(encoding="utf-8").splitlines()
# Words of the old vocabulary and others, in an order of their own.
NEW_WORDS = [*WORDS[:3], "entirely", *WORDS[:30:-2], "new", *WORDS[5:12]]
SMALL = {"batch_size": 2, "unroll_steps": 5, "n_negative_samples_batch": 8}


@pytest.fixture
def new_vocabulary(tmp_path):
    path = tmp_path / "new_words.txt"
    path.write_text("\n".join(NEW_WORDS) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO", logger="absl")
    return caplog


def tune(source, save_dir, n_steps=1, changes=SMALL, strategy=None, **arguments):
    strategy = strategy or make_strategy(n_gpus=0)
    arguments |= {"strategy": strategy, "n_steps": n_steps}
    return finetune(source, TEXT, save_dir, changes=changes, **arguments)


class TakenError(Exception):
    """Carries the weights out of a run that is not to take its first step."""


def first_weights(*arguments, **keywords):
    """Give the weights with which a fine-tuning goes into its first step, by stored name."""

    def take(self, iterator, step):
        assert step == 0
        raise TakenError(stored_values(self.model))

    with mock.patch.object(training.Trainer, "step", take), pytest.raises(TakenError) as taken:
        tune(*arguments, **keywords)
    return taken.value.args[0]


def assert_same(found, expected, only=lambda name: True):
    names = [name for name in expected if only(name)]
    assert names and all(name in found for name in names)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


# --- the sources ---


def heldout_perplexity(source):
    model = load_run(source)
    vocab = model_vocabulary(VOCABULARY, model)
    dataset = heldout_dataset(HELDOUT, vocab, model.options.bidirectional)
    return perplexity(model, dataset, SMALL["batch_size"])


@pytest.mark.parametrize("variant", ["characters", "words", "shared_softmax"])
def test_run(variant, tmp_path, log):
    source = tiny_run(variant)
    found, expected = first_weights(source, tmp_path), stored_values(load_run(source))
    assert set(found) == set(expected)
    assert_same(found, expected)
    assert "weights taken over, the softmax of 49 words too" in log.text
    assert "rows start afresh with probability 0.05; with 0 where the source" in log.text


def test_perplexities_and_the_folder(tmp_path):
    source = tiny_run("characters")
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


@pytest.mark.parametrize("source", [TF1_CHARS, TF1_WORDS])
def test_tf1_checkpoint(source, tmp_path):
    found = first_weights(source, tmp_path, vocab_file=VOCABULARY, heldout_prefix=HELDOUT)
    assert_same(found, stored_values(load_run(source)))
    record = json.loads((tmp_path / "finetuning.json").read_text())
    assert record["before"] == heldout_perplexity(source)._asdict()


@pytest.mark.parametrize("source", STORED, ids=lambda folder: folder.name)
def test_exported_model(source, tmp_path, log):
    files = source / "options.json", source / "weights.hdf5"
    assert json.loads(files[0].read_text())["char_cnn"]["n_characters"] == 262
    words = {"weight_file": files[1], "new_vocab_file": VOCABULARY}
    found = first_weights(files[0], tmp_path, **words)
    assert_same(found, stored_values(load_bilm(*files)))
    assert found["char_embed"].shape[0] == 261
    assert (found["softmax/b"] == 0).all()
    assert "the softmax is new: HDF5 files hold none" in log.text


def test_archive_and_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    archive = make_zip(tmp_path / "model.zip", ["options.json", "weights.hdf5"])
    expected = stored_values(load_bilm(*FILES.values()))
    assert_same(first_weights(archive, tmp_path / "a", new_vocab_file=VOCABULARY), expected)
    folder = tmp_path / "model"
    folder.mkdir()
    for path in FILES.values():
        shutil.copy(path, folder)
    assert_same(first_weights(folder, tmp_path / "b", new_vocab_file=VOCABULARY), expected)


def test_exported_model_that_reads_words(tmp_path):
    """Its table goes with its vocabulary; the softmax alone is new."""
    source = tiny_run("words")
    dump_weights(source, tmp_path / "model" / "weights.hdf5")
    found = first_weights(tmp_path / "model", tmp_path / "tuned", vocab_file=VOCABULARY)
    values = stored_values(load_run(source))
    assert_same(found, values, is_bilm)
    assert (found["softmax/W"] != values["softmax/W"]).any()


def test_every_replica_gets_the_weights(tmp_path):
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


@pytest.mark.parametrize("source", ["run", "tf1"])
def test_new_softmax(source, tmp_path, new_vocabulary, log):
    folder = tiny_run("characters") if source == "run" else TF1_CHARS
    words = {"vocab_file": None if source == "run" else VOCABULARY}
    new = first_weights(folder, tmp_path / "a", new_vocab_file=new_vocabulary, **words)
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


def test_new_softmax_where_the_old_words_are_not_known(tmp_path, new_vocabulary, log):
    found = first_weights(TF1_CHARS, tmp_path / "a", new_vocab_file=new_vocabulary)
    assert found["softmax/W"].shape[0] == len(NEW_WORDS)
    assert "the softmax is new: the source's words are not known" in log.text


def test_the_same_words_as_new_ones(tmp_path):
    source = tiny_run("characters")
    found = first_weights(source, tmp_path, new_vocab_file=VOCABULARY)
    assert_same(found, stored_values(load_run(source)))


# --- the run ---


def test_options(tmp_path):
    changes = {"learning_rate": 0.5, "dropout": 0.3, "state_reset_probability": 0.0}
    options = Source(tiny_run("characters")).run_options(changes).to_dict()
    stored = load_run_options(tiny_run("characters") / "options.json").to_dict()
    del stored["n_train_tokens"], stored["n_tokens_vocab"]
    assert options == stored | changes | {"n_epochs": 1}
    options = Source(**FILES).run_options({})  # nothing there but the shape
    assert (options.batch_size, options.unroll_steps, options.learning_rate) == (128, 20, 0.2)
    assert options.char_cnn.n_characters == 261


def test_continued_equals_straight(tmp_path, new_vocabulary, log):
    arguments = {"new_vocab_file": new_vocabulary, "heldout_prefix": HELDOUT}
    source = tiny_run("forward_only")
    straight = tune(source, tmp_path / "straight", n_steps=6, **arguments)
    half = tune(source, tmp_path / "stopped", n_steps=3, **arguments)
    log.clear()
    result = tune(source, tmp_path / "stopped", n_steps=6, **arguments)
    assert "continuing at step 3 of 6" in log.text and "taken over" not in log.text
    assert result == straight and half.before == straight.before
    found, expected = (load_run(tmp_path / name) for name in ("stopped", "straight"))
    assert_same(stored_values(found), stored_values(expected))
    # A finished run says the same once more.
    assert tune(source, tmp_path / "stopped", n_steps=6, **arguments) == straight


# --- what is refused ---


def fails(error, match, *arguments, **keywords):
    with pytest.raises(error, match=match):
        tune(*arguments, **keywords)


def test_no_softmax_and_no_vocabulary(tmp_path):
    match = "HDF5 files hold no softmax; say which words a new one"
    fails(DataError, match, save_dir=tmp_path / "a", **FILES)
    fails(DataError, match, save_dir=tmp_path / "a", vocab_file=VOCABULARY, **FILES)
    assert not (tmp_path / "a").exists()


def test_vocabulary_of_the_source(tmp_path, new_vocabulary):
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
def test_other_words_for_a_model_that_reads_words(source, tmp_path, new_vocabulary):
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


def test_folders_of_other_runs(tmp_path, new_vocabulary):
    source = tiny_run("characters")
    shutil.copytree(tiny_run("characters"), tmp_path / "other")
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
        ({"gpus": "one"}, "--gpus=one: expected numbers such as 0,1"),
        ({"save_dir": TF1_CHARS, "source": TF1_CHARS}, "source and save_dir are one folder"),
    ],
)
def test_command_fails(changes, expected, run_here, tmp_path):
    values = {"source": tiny_run("characters"), "train_prefix": TEXT, "save_dir": tmp_path / "run"}
    values |= changes
    arguments = [f"--{name}={value}" for name, value in values.items()]
    assert_fails(run_here("finetune.py", *arguments), expected)
    assert not (tmp_path / "run").exists()
