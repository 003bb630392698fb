"""The folder of a run: odd names, neighbours, damaged files, what is best, and who reads it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from tiny_runs import HELDOUT, TEXT, VOCABULARY, WORDS, damage, run, tiny_options, weights_of

from bilm.ask import load_scorer
from bilm.errors import (
    BilmError,
    DataError,
    NotFiniteError,
    OptionsError,
    OutOfMemoryError,
    WeightsError,
)
from bilm.evaluation import Perplexity, heldout_dataset, perplexity
from bilm.storage.checkpoint import StoredRun, load_run, load_state, model_vocabulary
from bilm.storage.checkpoint_folder import checkpoint_paths, read_latest
from bilm.training import run as training
from bilm.training.devices import Devices
from bilm.training.export import dump_weights
from bilm.training.finetuning import finetune
from bilm.training.run import Saving
from bilm.training.run_folder import RunFolder
from bilm.training.saved import find_saved
from bilm.training.step import Trainer

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory):
    """A run with a checkpoint after each of its steps, measured at its end; not to be written."""
    folder = tmp_path_factory.mktemp("three") / "run"
    run(folder, 3, heldout=HELDOUT, saving=Saving(steps=1, keep=9))
    return folder


@pytest.fixture
def a_run(three_steps, tmp_path):
    return Path(shutil.copytree(three_steps, tmp_path / "run"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(name, **flags):
    arguments = [f"--{key}={value}" for key, value in flags.items()]
    return subprocess.run([sys.executable, BIN / name, *arguments], capture_output=True, text=True)


# --- names ---


@pytest.mark.parametrize("name", ["run?", "run*", "-sp ace\nünï {a,b}"])
def test_a_run_touches_no_neighbour(tmp_path, three_steps, name):
    for neighbour in ("run1", "runx"):
        shutil.copytree(three_steps, tmp_path / neighbour)
    before = contents(tmp_path)
    folder = tmp_path / name
    run(folder, 2, saving=Saving(1, 15.0, 1))
    run(folder, 4, heldout=HELDOUT, eval_steps=1, saving=Saving(1, 15.0, 1))
    assert {path: data for path, data in contents(tmp_path).items() if path in before} == before
    assert [path.name for path in folder.glob("*.index")] == ["model.ckpt-4.index"]
    assert tf.train.latest_checkpoint(str(folder)) == f"{folder}/model.ckpt-4"
    assert len(list((folder / "best").glob("*.index"))) == 1
    values = weights_of(folder)
    assert dump_weights(folder, tmp_path / "out" / "weights.hdf5")
    assert all(np.isfinite(value).all() for value in values.values())


def test_a_command_touches_no_neighbour(tmp_path, three_steps):
    shutil.copytree(three_steps, tmp_path / "run1")
    before = contents(tmp_path)
    options = tmp_path / "options.json"
    options.write_text(json.dumps(tiny_options(**WORDS).to_dict()))
    done = command(
        "train_elmo.py", train_prefix=TEXT, vocab_file=VOCABULARY, save_dir=tmp_path / "run?",
        options=options, n_steps=4, checkpoint_steps=1, keep_checkpoints=1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run1") == before


@pytest.mark.parametrize("name", ["run[1]", "e\\f", "a]", "b[", os.fsdecode(b"\xff")])
def test_a_name_that_tensorflow_cannot_read_is_refused(tmp_path, name):
    with pytest.raises(BilmError, match="TensorFlow cannot read a checkpoint in a folder of such"):
        run(tmp_path / name, 1)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_under_such_a_name_says_so(tmp_path, three_steps):
    folder = shutil.copytree(three_steps, tmp_path / "run[1]")
    with pytest.raises(WeightsError, match=r"run\[1\]': holds \[, and TensorFlow cannot read"):
        load_run(folder)


def test_folders_of_others_that_end_in_temp_stay(a_run):
    (a_run / "my_temp").mkdir()
    (a_run / "model.ckpt-9_temp").mkdir()
    run(a_run, 4)
    assert (a_run / "my_temp").exists() and not (a_run / "model.ckpt-9_temp").exists()


@pytest.mark.parametrize("name", [".", "logs", "best"])
def test_a_file_where_a_folder_should_be_is_named(tmp_path, name):
    path = tmp_path / "run" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(BilmError, match=f"{path}: is a file; expected a folder"):
        run(tmp_path / "run", 1)


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(Path(TEXT).parent, tmp_path / "text")
    shutil.copy(VOCABULARY, tmp_path / "words")
    monkeypatch.setattr("tiny_runs.VOCABULARY", "~/words")
    run("~/run", 1, text="~/text/*", heldout="~/text/*")
    assert (tmp_path / "run" / "model.ckpt-1.index").exists()
    model = load_run("~/run")
    vocab = model_vocabulary("~/words", model)
    assert perplexity(model, heldout_dataset("~/text/*", vocab, False), 2).n_predictions
    tuned = finetune("~/run", "~/text/*", "~/tuned", vocab_file="~/words", n_steps=1)
    assert tuned.finished and (tmp_path / "tuned" / "finetuning.json").exists()
    assert dump_weights("~/run", tmp_path / "weights.hdf5")


def test_a_process_that_is_not_the_chief_trains_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Devices, "is_chief", False)
    result = run(tmp_path / "run", 2, heldout=HELDOUT)
    assert result.step == 2 and result.heldout is not None
    assert not (tmp_path / "run").exists()


# --- readers ---


def test_readers_pass_over_a_damaged_checkpoint(a_run, log):
    expected = find_saved(a_run).step - 1
    damage(a_run, 3, "a byte")
    assert find_saved(a_run).step == expected
    model = load_run(a_run)
    assert f"trying {a_run}/model.ckpt-2, the one before it" in log.text
    state, n_rows = load_state(a_run, model)
    assert n_rows == 2 and set(state) == {"forward"}
    own = tf.train.load_checkpoint(f"{a_run}/model.ckpt-2")
    name = "weights/softmax.SW/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(weights_of(a_run)["softmax/W"], own.get_tensor(name))
    tuned = finetune(a_run, TEXT, a_run.parent / "tuned", n_steps=1)
    assert tuned.finished


@pytest.fixture
def spoiled(monkeypatch):
    """Each step leaves a weight that is not finite."""
    step = Trainer.step

    def spoil(self, iterator, number):
        result = step(self, iterator, number)
        self.optimizer.variables[0].assign(self.optimizer.variables[0] * np.nan)
        return result

    monkeypatch.setattr(Trainer, "step", spoil)


def test_a_checkpoint_that_is_not_finite_is_passed_over(a_run, spoiled, monkeypatch, log):
    monkeypatch.setattr("bilm.training.checkpoints.RunCheckpoints._check_finite", lambda *_: None)
    run(a_run, 4)
    assert find_saved(a_run).step == 3
    assert "is not finite; trying" in log.text
    load_run(a_run)


def test_no_list_is_needed(a_run):
    (a_run / "checkpoint").unlink()
    assert finetune(a_run, TEXT, a_run.parent / "tuned", n_steps=1).finished


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"model_checkpoint_path: 7", b"{" * 99])
def test_a_damaged_list_is_ignored(a_run, content):
    (a_run / "checkpoint").write_bytes(content)
    assert load_run(a_run).n_tokens == 49
    assert run(a_run, 4).step == 4
    assert tf.train.latest_checkpoint(str(a_run)) == f"{a_run}/model.ckpt-4"


def test_a_list_with_paths_of_another_machine(a_run):
    for path in a_run.glob("model.ckpt-*"):
        path.rename(path.with_name(path.name.replace("model.ckpt-", "model_")))
    (a_run / "checkpoint").write_text('model_checkpoint_path: "/gone/model_3"\n')
    assert load_run(a_run).n_tokens == 49


def test_a_checkpoint_removed_while_it_is_read_gives_way_to_a_newer_one(tmp_path):
    (tmp_path / "model.ckpt-1.index").touch()

    def read(path):
        if path.endswith("-1"):  # a run saves and removes meanwhile
            (tmp_path / "model.ckpt-2.index").touch()
            raise WeightsError(path)
        return path

    assert read_latest(tmp_path, read) == f"{tmp_path}/model.ckpt-2"


# --- damaged records ---

NO_RECORD = [
    b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"step": 3}', b'{"step": "x"}',
    b'{"step": 3, "directions": 5, "mean": 1.0, "n_predictions": 1}',
    b'{"step": 3, "directions": {"forward": "x"}, "mean": null, "n_predictions": null}',
]  # fmt: skip


@pytest.mark.parametrize("content", NO_RECORD[3:])
def test_a_damaged_measurement_is_made_again(a_run, content, log):
    expected = run(a_run, 3, heldout=HELDOUT).heldout
    (a_run / "heldout.json").write_bytes(content)
    assert run(a_run, 3, heldout=HELDOUT).heldout == expected
    assert f"{a_run / 'heldout.json'}: not the record of a measurement" in log.text


@pytest.mark.parametrize("content", [*NO_RECORD[:5], b'{"source": 3, "before": 1, "after": "x"}'])
def test_a_damaged_record_of_a_fine_tuning_is_named(a_run, content):
    (a_run / "finetuning.json").write_bytes(content)
    other = shutil.copytree(a_run, a_run.parent / "source")
    with pytest.raises(BilmError, match=r"finetuning\.json: not the record of a fine-tuning"):
        finetune(other, TEXT, a_run, n_steps=4)


@pytest.mark.parametrize("content", NO_RECORD[:5])
def test_damaged_options_of_a_run_are_named(a_run, content):
    (a_run / "options.json").write_bytes(content)
    for use in (lambda: run(a_run, 4), lambda: load_run(a_run)):
        with pytest.raises(OptionsError, match=r"options\.json: "):
            use()


# --- what is best ---


def test_the_best_checkpoint_has_its_place(tmp_path):
    run(tmp_path / "straight", 5)
    run(tmp_path / "run", 3)
    run(tmp_path / "run", 3, heldout=HELDOUT)  # measured after it had ended
    best = find_saved(tmp_path / "run" / "best")
    assert best.step == 3 and best.position is not None
    run(tmp_path / "run" / "best", 5)
    expected = weights_of(tmp_path / "straight")
    for name, value in weights_of(tmp_path / "run" / "best").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def measured_as(monkeypatch, *values):
    scores = iter(values)

    def evaluate(*_):
        score = next(scores)
        return Perplexity({"forward": score}, score, 10)

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)


def test_the_end_tells_what_is_best_and_how_to_export_it(tmp_path, monkeypatch, log):
    folder = tmp_path / "a run"
    measured_as(monkeypatch, 9.0, 5.0, 7.0, 4.0)
    run(folder, 3, heldout=HELDOUT, eval_steps=1)
    assert "perplexity 5.00 at step 2" in log.text and "the last: 7.00 at step 3" in log.text
    program, name, *flags = shlex.split(log.messages[-1].removeprefix("to export: "))
    assert (program, name) == ("bilm", "export")
    arguments = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    assert arguments["model"] == f"{folder}/best"
    assert all(path.exists() for path in dump_weights(arguments["model"], arguments["output"]))
    log.clear()
    run(folder, 3, heldout=HELDOUT)  # told again
    assert "perplexity 5.00 at step 2" in log.text
    log.clear()
    run(folder, 4, heldout=HELDOUT, eval_steps=1)
    assert log.messages[-1].startswith(f"to export: bilm export '--model={folder}' ")


def test_an_export_warns_where_another_checkpoint_is_better(tmp_path, monkeypatch, log):
    measured_as(monkeypatch, 9.0, 5.0, 7.0)
    run(tmp_path / "run", 3, heldout=HELDOUT, eval_steps=1)
    dump_weights(tmp_path / "run", tmp_path / "last" / "weights.hdf5")
    assert "was better: perplexity 5.00 at step 2 against 7.00 at step 3" in log.text
    log.clear()
    dump_weights(tmp_path / "run" / "best", tmp_path / "best" / "weights.hdf5")
    assert "was better" not in log.text


def test_a_damaged_best_ends_no_run(a_run, log):
    damage(a_run / "best", 3, "cut")
    assert run(a_run, 4, heldout=HELDOUT).step == 4
    assert "best/model.ckpt-3: not a whole checkpoint" in log.text
    best = RunFolder(a_run).find_best()
    assert best is None or best.step == 4


# --- numbers that are not finite, memory, seeds ---


@pytest.mark.parametrize("rate", [1e39, 1e-50, -1.0, 0])
def test_a_learning_rate_that_float32_cannot_hold_is_refused(tmp_path, rate):
    with pytest.raises(OptionsError, match=r"learning_rate: found .*, expected a positive number"):
        run(tmp_path / "run", 1, changes=WORDS | {"learning_rate": rate})
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_finite_are_not_saved(a_run, spoiled):
    with pytest.raises(NotFiniteError, match=r"step 4: .* is not finite, so that nothing was sav"):
        run(a_run, 5)
    assert find_saved(a_run).step == 3
    assert not list(a_run.glob("model.ckpt-[45]*"))


def test_memory_that_runs_out_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    gradients = Trainer._gradients

    def large(self, batch, state, step):
        found, losses, state = gradients(self, batch, state, step)
        size = tf.where(step == 2, tf.constant(1 << 50, tf.int64), 1)
        return found, losses + tf.reduce_sum(tf.fill([size], 0.0)), state

    monkeypatch.setattr(Trainer, "_gradients", large)
    with pytest.raises(OutOfMemoryError) as raised:
        run(tmp_path, 4)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}: out of memory (") and "\n" not in message
    assert "make batch_size, unroll_steps, n_negative_samples_batch or the" in message
    assert find_saved(tmp_path).step == 2


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40, 1.5, "1"])
def test_a_seed_out_of_range_is_refused(tmp_path, seed):
    with pytest.raises(OptionsError, match=r"seed: found .*, expected an integer from 0 to 2147"):
        run(tmp_path / "run", 1, seed=seed)
    assert not (tmp_path / "run").exists()


def test_the_largest_seed_trains(tmp_path):
    assert run(tmp_path, 1, seed=2**31 - 1).finished


# --- odd runs ---


def test_a_run_that_came_first_is_not_gone_on_with(tmp_path, monkeypatch):
    """Two start at once; one is done before the other has looked at the text."""
    resolve = training.resolve_shards

    def other_first(*arguments):
        monkeypatch.setattr(training, "resolve_shards", resolve)
        run(tmp_path, 2, changes=WORDS | {"lstm": {"dim": 16}})
        return resolve(*arguments)

    monkeypatch.setattr(training, "resolve_shards", other_first)
    with pytest.raises(OptionsError, match=r"lstm\.dim is 16 in this folder's run, but 8 was"):
        run(tmp_path, 4)
    monkeypatch.setattr(training, "resolve_shards", other_first)
    with pytest.raises(BilmError, match="holds a run; give another folder"):
        run(tmp_path, 4, resume="never")


def test_no_steps_are_refused(tmp_path):
    with pytest.raises(BilmError, match="n_steps 0 and eval_steps None: expected at least 1"):
        run(tmp_path, 0)


def test_a_text_smaller_than_a_window_is_told(tmp_path, log):
    (tmp_path / "text").write_text("the cat\n")
    assert run(tmp_path / "run", 2, text=str(tmp_path / "text")).finished
    assert "the text has 3 predictions and a step takes 10" in log.text


def test_heldout_text_that_is_trained_on_is_told(tmp_path, log):
    link = tmp_path / "link"
    link.symlink_to(next(Path(TEXT).parent.iterdir()))
    run(tmp_path / "run", 1, heldout=str(link))
    assert f"{link}: is trained on too" in log.text


def test_a_vocabulary_without_words_is_refused(tmp_path, monkeypatch):
    (tmp_path / "words").write_text("<S>\n</S>\n<UNK>\n")
    monkeypatch.setattr("tiny_runs.VOCABULARY", tmp_path / "words")
    with pytest.raises(BilmError, match="words: "):
        run(tmp_path / "run", 1)


def test_files_of_others_are_not_overwritten(tmp_path):
    for name in ("options.json", "vocab.txt"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(BilmError, match=rf"{name}: is there, but no run is"):
            run(folder, 1)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine"


def test_a_last_evaluation_that_was_killed_is_made_up_for(tmp_path, monkeypatch):
    """An earlier one does not stand for it."""
    assert run(tmp_path, 2, heldout=HELDOUT).heldout is not None
    evaluate = training.Evaluator.__call__

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(training.Evaluator, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 4, heldout=HELDOUT)
    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)
    result = run(tmp_path, 4, heldout=HELDOUT)
    assert result.step == 4 and result.heldout is not None
    assert RunFolder(tmp_path).read_measured()[0] == 4


@pytest.mark.parametrize("change", [{"mean": True}, {"mean": 0.5}, {"n_predictions": -3}])
def test_a_record_of_impossible_numbers_is_ignored(tmp_path, change):
    values = {"step": 2, "directions": {"forward": 3.0}, "mean": 3.0, "n_predictions": 4}
    path = tmp_path / "heldout.json"
    path.write_text(json.dumps(values))
    assert RunFolder(tmp_path).read_measured()[0] == 2
    path.write_text(json.dumps(values | change))
    assert RunFolder(tmp_path).read_measured() is None


def test_readers_pass_over_a_checkpoint_without_its_data(a_run):
    latest, before = checkpoint_paths(a_run)[:2]
    for path in a_run.glob(f"{Path(latest).name}.data-*"):
        path.unlink()
    assert StoredRun(a_run).path == before


def test_a_copied_folder_reads_its_own_checkpoints(a_run, tmp_path):
    """Under names that are not ours, which TensorFlow's list alone knows, by absolute paths."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    shutil.copytree(a_run, first)
    step = checkpoint_paths(first)[0].rpartition("-")[2]
    for path in first.glob("model.ckpt-*"):
        if f"ckpt-{step}." in path.name:
            path.rename(first / path.name.replace("model.ckpt", "mine"))
        else:
            path.unlink()
    name = f"{first}/mine-{step}"
    (first / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    shutil.copytree(first, copy)
    assert StoredRun(copy).path == f"{copy}/mine-{step}"


def test_another_order_of_the_words_is_refused(a_run, tmp_path):
    words = (a_run / "vocab.txt").read_text(encoding="utf-8").split()
    (tmp_path / "words").write_text("\n".join([*words[:3], *words[:2:-1]]), encoding="utf-8")
    with pytest.raises(DataError, match=r"differs from .*vocab\.txt, the model's own vocabulary"):
        load_scorer(a_run, tmp_path / "words")
