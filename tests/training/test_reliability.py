"""Whatever ends a run: what it goes on from, and what it refuses."""

import json
import math
import os
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
from small_disk import small_disk
from tiny_runs import (
    HELDOUT,
    TEXT,
    VARIANTS,
    VOCABULARY,
    WORDS,
    damage,
    run,
    tiny_options,
    tiny_run,
    weights_of,
)

from bilm.data.dataset import SHUFFLE_BUFFER
from bilm.errors import BilmError, DataError, NotFiniteError, WeightsError
from bilm.evaluation import Perplexity
from bilm.options import load_run_options
from bilm.storage.checkpoint import load_run
from bilm.storage.checkpoint_folder import CheckpointFolder
from bilm.training import plan, preparation
from bilm.training import run as training
from bilm.training.run import Saving
from bilm.training.run_folder import RunFolder
from bilm.training.saved import find_saved
from bilm.training.step import Trainer


@pytest.fixture
def losses(monkeypatch):
    """What each step of the runs of a test reports."""
    seen = []
    add = training.RunReport.add

    def adding(self, step, result):
        seen.append(np.array(result.losses))
        add(self, step, result)

    monkeypatch.setattr(training.RunReport, "add", adding)
    return seen


# --- whether to continue ---


def test_a_run_is_not_continued_against_ones_will(tmp_path):
    run(tmp_path, resume="never")
    with pytest.raises(BilmError, match=rf"{tmp_path}: holds a run; give another folder"):
        run(tmp_path, resume="never")
    assert run(tmp_path, n_steps=5, resume="must").step == 5


def test_there_must_be_a_run_to_continue(tmp_path):
    with pytest.raises(BilmError, match=r"run: holds no checkpoint"):
        run(tmp_path / "run", resume="must")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BilmError, match="resume=perhaps: expected one of auto, never, must"):
        run(tmp_path, resume="perhaps")


def test_the_corpus_is_counted_once(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(preparation, "survey", lambda *_, **__: pytest.fail("counted again"))
    assert run(tmp_path, n_steps=5).step == 5


def test_another_text_is_refused(tmp_path):
    text = tmp_path / "a.txt"
    shutil.copy(next(Path(TEXT).parent.iterdir()), text)
    run(tmp_path / "run", text=str(text))
    text.write_bytes(text.read_bytes() + b"the\n")
    with pytest.raises(DataError, match=r"a\.txt: found a\.txt, \d+ bytes, but this folder's run"):
        run(tmp_path / "run", 5, text=str(text))


# --- replicas ---

PLAIN = {"dropout": 0.0, "sample_softmax": False}


def test_a_run_goes_on_with_another_number_of_replicas(tmp_path, losses, log):
    run(tmp_path / "straight", 6, changes=PLAIN)
    straight = [step.mean(axis=0) for step in losses]
    losses.clear()
    run(tmp_path / "run", 2, changes=PLAIN)
    run(tmp_path / "run", 4, changes=PLAIN, n_replicas=2)
    assert "the run's 2 rows are shared anew: 2 replicas x 1 rows" in log.text
    assert '"batch_size": 1' in (tmp_path / "run" / "options.json").read_text()
    run(tmp_path / "run", 6, changes=PLAIN)
    assert [len(step) for step in losses] == [1, 1, 2, 2, 1, 1]
    for found, expected in zip(losses, straight, strict=True):
        np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-5)
    expected = weights_of(tmp_path / "straight")
    for name, value in weights_of(tmp_path / "run").items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_replicas_that_do_not_divide_the_rows_are_refused(tmp_path):
    run(tmp_path, changes=WORDS | {"batch_size": 3})
    with pytest.raises(WeightsError, match="its 3 rows cannot be shared by 2 replicas"):
        run(tmp_path, 5, changes=WORDS | {"batch_size": 3}, n_replicas=2)


# --- what is kept ---


def test_the_best_score_and_its_checkpoint_outlive_a_restart(tmp_path, monkeypatch, log):
    scores = iter([9.0, 5.0, 7.0, 6.0, 4.0])

    def evaluate(*_):
        score = next(scores)
        return Perplexity({"forward": score}, score, 10)

    monkeypatch.setattr(training.Evaluator, "__call__", evaluate)
    run(tmp_path, 3, heldout=HELDOUT, eval_steps=1)
    assert find_saved(tmp_path / "best").step == 2
    assert {path.name for path in (tmp_path / "best").iterdir()} >= {"options.json", "vocab.txt"}
    run(tmp_path, 4, heldout=HELDOUT, eval_steps=1)
    assert (find_saved(tmp_path / "best").step, find_saved(tmp_path).best) == (2, 5.0)
    run(tmp_path, 5, heldout=HELDOUT, eval_steps=1)
    assert (find_saved(tmp_path / "best").step, find_saved(tmp_path / "best").best) == (5, 4.0)
    assert log.text.count("the best so far") == 3
    load_run(tmp_path / "best")


def test_as_many_checkpoints_as_asked_for_stay(tmp_path):
    run(tmp_path, 6, saving=Saving(steps=2, keep=2))
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "model.ckpt-4.index",
        "model.ckpt-6.index",
    ]


def test_checkpoints_by_time(tmp_path):
    run(tmp_path, 4, saving=Saving(minutes=0.0, keep=9))
    assert len(list(tmp_path.glob("*.index"))) == 4


# --- the lock ---


def test_two_runs_do_not_write_the_same_folder(tmp_path):
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(
            BilmError, match=rf"{tmp_path}: process {os.getpid()} on .* is training in this folder"
        ),
    ):
        run(tmp_path)
    assert run(tmp_path).finished


def test_the_lock_dies_with_its_process(tmp_path):
    code = "import sys, time; from bilm.training.run_folder import RunFolder\n"
    code += "with RunFolder(sys.argv[1]).locked(): print('locked', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    lock = RunFolder(tmp_path).locked
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BilmError, match=f"process {process.pid} on"), lock():
            pass
        process.kill()
    with lock():
        pass


# --- loss and gradient ---


forward, gradients = Trainer.forward, Trainer._gradients


@pytest.mark.parametrize("what", ["loss", "gradient's norm"])
@pytest.mark.parametrize("n_replicas", [1, 2])
def test_a_step_that_is_not_finite_changes_nothing(tmp_path, monkeypatch, what, n_replicas):
    before = {}

    def at_third(step, value):
        return tf.where(step == 2, value, 1.0)

    def bad_forward(self, batch, state, seeds):
        losses, state = forward(self, batch, state, seeds)
        return losses * bad_forward.factor, state

    def bad_gradients(self, batch, state, step):
        factor = at_third(step, math.nan if what == "loss" else math.inf)
        bad_forward.factor = factor if what == "loss" else 1.0
        found, losses, state = gradients(self, batch, state, step)
        if what != "loss":
            found = [
                tf.IndexedSlices(g.values * factor, g.indices)
                if isinstance(g, tf.IndexedSlices)
                else g * factor
                for g in found
            ]
        return found, losses, state

    step = Trainer.step

    def watching(self, iterator, number):
        if number == 2:
            before.update(values_of(self))
            before["trainer"] = self
        return step(self, iterator, number)

    monkeypatch.setattr(Trainer, "forward", bad_forward)
    monkeypatch.setattr(Trainer, "_gradients", bad_gradients)
    monkeypatch.setattr(Trainer, "step", watching)
    with pytest.raises(NotFiniteError) as raised:
        run(tmp_path, n_replicas=n_replicas)
    message = str(raised.value)
    assert message.startswith(f"step 3: the {what} is not finite; nothing was updated")
    (shard,) = Path(TEXT).parent.iterdir()
    assert f"the window holds {shard}, lines " in message
    after = values_of(before.pop("trainer"))
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    assert find_saved(tmp_path).step == 2


def values_of(trainer):
    """Weights, accumulators and states of every replica."""
    local = trainer.devices.local
    named = {f"state {i}": array for i, array in enumerate(trainer.global_state())}
    for i, variables in enumerate(
        zip(trainer.optimizer.variables, *trainer.optimizer.slots.values(), strict=True)
    ):
        for j, variable in enumerate(variables):
            for k, part in enumerate(local(variable)):
                named[f"{i} {j} {k}"] = part.numpy()
    return named


# --- checkpoints that are not whole ---


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """A run with a checkpoint after each of its steps, not to be written to."""
    folder = tmp_path_factory.mktemp("four")
    run(folder, 4, saving=Saving(steps=1, keep=9))
    return folder


@pytest.fixture(scope="module")
def fifth_weights(four_steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("five") / "run"
    shutil.copytree(four_steps, folder)
    run(folder, 5)
    return weights_of(folder)


@pytest.mark.parametrize("how", ["cut", "index cut", "a byte", "empty", "no data", "no index"])
def test_the_checkpoint_before_a_damaged_one_is_used(tmp_path, how, log, four_steps, fifth_weights):
    folder = tmp_path / "run"
    shutil.copytree(four_steps, folder)
    damage(folder, 4, how)
    run(folder, 5)
    assert "model.ckpt-4: not a whole checkpoint" in log.text
    assert f"trying {folder}/model.ckpt-3, the one before it" in log.text
    assert "continuing at step 3 of 5" in log.text
    for name, value in weights_of(folder).items():
        np.testing.assert_array_equal(value, fifth_weights[name], err_msg=name)


def test_no_whole_checkpoint_is_an_error(tmp_path, four_steps):
    folder = tmp_path / "run"
    shutil.copytree(four_steps, folder)
    for step in range(1, 5):
        damage(folder, step, "cut")
    with pytest.raises(WeightsError, match=r"model\.ckpt-1: not a whole checkpoint .* no other"):
        run(folder, 5)


def test_what_an_unfinished_save_left_is_removed(tmp_path, log):
    run(tmp_path, 2)
    (tmp_path / "model.ckpt-3_temp").mkdir()
    (tmp_path / "model.ckpt-3_temp" / "part-00000-of-00001.data").write_bytes(b"half")
    assert run(tmp_path, 3).step == 3
    assert "model.ckpt-3_temp: left by a save that was cut short; removed" in log.text
    assert not list(tmp_path.glob("*_temp"))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch, four_steps):
    folder = tmp_path / "run"
    shutil.copytree(four_steps, folder)
    before = {path.name: path.read_bytes() for path in folder.glob("model.ckpt*")}
    write = CheckpointFolder.write

    def write_on_small_disk(self, checkpoint, step):
        with small_disk(2_000):
            return write(self, checkpoint, step)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write_on_small_disk)
        with pytest.raises(WeightsError) as raised:
            run(folder, 6)
    message = str(raised.value)
    assert f"{folder}/model.ckpt-5: cannot be saved: " in message and "\n" not in message
    assert message.endswith(f"the last checkpoint: {folder}/model.ckpt-4")
    assert {path.name: path.read_bytes() for path in folder.glob("model.ckpt*")} == before
    assert run(folder, 6).step == 6


# --- the estimate ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_counted_right(variant):
    n_tokens = len(VOCABULARY.read_text().splitlines())
    values = weights_of(tiny_run(variant)).values()
    n_parameters, _ = plan.count_parameters(tiny_options(**VARIANTS[variant]).model, n_tokens)
    assert n_parameters == sum(value.size for value in values)


def test_what_a_run_takes_is_told(tmp_path, log, monkeypatch):
    run(tmp_path / "fits", 1)
    assert "parameters; a replica takes about" in log.text and "are needed" not in log.text
    monkeypatch.setattr(plan, "machine_memory", lambda: 1_000)
    run(tmp_path / "does not fit", 1)
    assert "are needed, but this machine has 0.00 MB: the run may be killed" in log.text


def test_a_step_of_the_sampled_softmax_has_no_gradient_of_the_whole_table():
    original = load_run_options("original_2018")
    memory = plan.estimate_memory(original, 793_471)
    n_parameters, _ = plan.count_parameters(original.model, 793_471)
    assert memory.weights == memory.slots == 4 * n_parameters
    assert memory.gradients < memory.weights / 2
    adam = plan.estimate_memory(original.replace(optimizer="adam"), 793_471)
    assert adam.slots == 2 * memory.slots
    full = plan.estimate_memory(original.replace(sample_softmax=False), 793_471)
    assert full.gradients == full.weights and full.activations > memory.activations
    assert 0 < plan.machine_memory() < 1 << 60


# --- kills between two writes, and what is told ---


def test_a_checkpoint_that_is_not_listed_is_used_and_rotated_out(tmp_path):
    folder = tmp_path / "run"
    run(folder, n_steps=2)
    (folder / "checkpoint").unlink()  # a kill between a checkpoint and TensorFlow's list
    assert load_run(folder).n_tokens == 49
    run(folder, n_steps=4, saving=Saving(1, 15.0, 1))
    assert [path.name for path in folder.glob("*.index")] == ["model.ckpt-4.index"]
    moved = folder.rename(tmp_path / "moved")
    assert load_run(moved).n_tokens == 49


def test_an_evaluation_that_was_killed_is_made_up_for(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training.Evaluator, "__call__", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, n_steps=2, heldout=HELDOUT)
    assert not (tmp_path / "best").exists()
    result = run(tmp_path, n_steps=2, heldout=HELDOUT)
    assert result.step == 2 and result.finished and result.heldout.mean > 1
    assert (tmp_path / "best" / "model.ckpt-2.index").exists()
    # Told again, not made again.
    assert run(tmp_path, n_steps=2, heldout=HELDOUT).heldout == result.heldout


def test_other_options_of_training_are_told(tmp_path, log):
    run(tmp_path, n_steps=1)
    run(tmp_path, n_steps=2, changes=WORDS | {"dropout": 0.5})
    assert f"{tmp_path / 'options.json'}: dropout was 0.1 so far, and is 0.5 from here" in log.text


def test_a_folder_whose_run_never_saved_takes_another_model(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(tiny_options().to_dict()))
    (tmp_path / ".lock").touch()
    assert run(tmp_path, n_steps=1).finished


def test_an_error_in_the_text_loses_no_step(tmp_path):
    # Read ahead as far as lines wait to be drawn, the bad one is met after some steps.
    lines = b"the cat sat\n" * (SHUFFLE_BUFFER + 50)
    (tmp_path / "text").write_bytes(lines + b"bad \xff\n")
    saved = tmp_path / "run"
    changes = WORDS | {"n_train_tokens": 100}
    with (
        pytest.MonkeyPatch.context() as patched,
        pytest.raises(DataError, match="not UTF-8"),
    ):
        patched.setattr("bilm.data.survey.SAMPLE_TOKENS", 50)
        run(saved, 10_000, str(tmp_path / "text"), changes=changes, saving=Saving(10_000))
    assert find_saved(saved).step > 1
