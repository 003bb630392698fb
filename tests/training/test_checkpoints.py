"""Checkpoints of a run: pruning, damaged ones, readers, and the list of checkpoints."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from disk_faults import flip_bit, small_disk
from tiny_runs import TEXT, assert_same_values, damage, load_run, run, weights_of

from bilm.errors import WeightsError
from bilm.storage.checkpoint import SUFFIX, Checkpoint, CheckpointContent, latest_checkpoint
from bilm.storage.stored_model import open_model
from bilm.support.files import PREFIX, _prefix
from bilm.tensors import is_bilm
from bilm.training.finetuning import finetune


def test_checkpoint_pruning_keeps_the_requested_number(tmp_path):
    run(tmp_path, 6, checkpoint_steps=2, keep_checkpoints=2)
    names = {path.name for path in tmp_path.glob("*.index")}
    assert names == {"model.ckpt-4.index", "model.ckpt-6.index"}


def test_checkpoints_are_saved_by_time(tmp_path):
    run(tmp_path, 4, checkpoint_steps=100, checkpoint_minutes=0.0, keep_checkpoints=9)
    assert len(list(tmp_path.glob("*.index"))) == 4


WAYS = ["cut", "index cut", "a byte", "empty", "no data", "no index"]


def test_resume_skips_several_damaged_checkpoints(tmp_path, log):
    """Each is damaged in another way; the result equals the result of an undamaged run."""
    run(tmp_path, 2 + len(WAYS), checkpoint_steps=1, keep_checkpoints=99)
    expected = weights_of(tmp_path)
    for step, how in enumerate(WAYS, start=3):
        damage(tmp_path, step, how)
    log.clear()
    run(tmp_path, 2 + len(WAYS))
    for step in range(3, 3 + len(WAYS)):
        assert f"model.ckpt-{step}: not a whole checkpoint" in log.text
    assert "continuing at step 2 of 8" in log.text
    assert_same_values(weights_of(tmp_path), expected)


def test_resume_without_a_whole_checkpoint_is_an_error(a_run):
    for step in range(1, 4):
        damage(a_run, step, "cut")
    with pytest.raises(WeightsError, match=r"model\.ckpt-1: not a whole checkpoint .* no other"):
        run(a_run, 4)


def test_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path, monkeypatch):
    for function in ("listdir", "scandir"):
        monkeypatch.setattr(os, function, Mock(side_effect=PermissionError))
    with pytest.raises(PermissionError):
        latest_checkpoint(tmp_path)


def test_leftovers_of_an_interrupted_save_are_removed(a_run):
    leftover = Path(tempfile.mkdtemp(prefix=_prefix(a_run / "model.ckpt"), dir=a_run))
    (leftover / "part-00000-of-00001.data").write_bytes(b"half")
    assert run(a_run, 4).step == 4
    assert not list(a_run.glob(f"{PREFIX}*"))


@pytest.mark.parametrize("step", [4, 3], ids=["new step", "same step"])
def test_full_disk_keeps_the_last_checkpoint(a_run, monkeypatch, step):
    before = {path.name: path.read_bytes() for path in a_run.glob("model.ckpt*")}
    write = CheckpointContent.write

    def write_on_small_disk(self, folder, record, keep):
        with small_disk(2_000):
            return write(self, folder, replace(record, step=step), keep)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointContent, "write", write_on_small_disk)
        with pytest.raises(WeightsError) as raised:
            run(a_run, 5)
    message = str(raised.value)
    assert f"{a_run}/model.ckpt-{step}: cannot be saved: " in message and "\n" not in message
    assert message.endswith(f"the last checkpoint: {a_run}/model.ckpt-3")
    assert {path.name: path.read_bytes() for path in a_run.glob("model.ckpt*")} == before
    assert run(a_run, 5).step == 5


def test_readers_skip_a_damaged_checkpoint(a_run, log):
    expected = latest_checkpoint(a_run).record.step - 1
    damage(a_run, 3, "a byte")
    assert latest_checkpoint(a_run).record.step == expected
    model = load_run(a_run)
    assert f"trying {a_run}/model.ckpt-2, the one before it" in log.text
    assert open_model(a_run).own_files[1].name.startswith("model.ckpt-2.")
    state = open_model(a_run).require_run().state
    assert len(state[0]) == 2 and model.directions == ("forward",)
    own = tf.train.load_checkpoint(f"{a_run}/model.ckpt-2")
    name = "weights/softmax.SW/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(weights_of(a_run)["softmax/W"], own.get_tensor(name))
    tuned = finetune(a_run, TEXT, a_run.parent / "tuned", n_steps=1)
    assert tuned.finished


def test_checkpoint_removed_while_it_is_opened_gives_way_to_a_newer_one(a_run, monkeypatch):
    opened = Checkpoint.__init__

    def saving_meanwhile(self, path, *arguments):
        if path.endswith("-3"):
            for part in a_run.glob("model.ckpt-3.*"):
                part.rename(part.with_name(part.name.replace("-3.", "-4.")))
        opened(self, path, *arguments)

    monkeypatch.setattr(Checkpoint, "__init__", saving_meanwhile)
    assert latest_checkpoint(a_run).path == f"{a_run}/model.ckpt-4"


def flip_byte_of(folder, step, key):
    """Change one byte of a tensor in a checkpoint's data file."""
    value = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}").get_tensor(key + SUFFIX)
    flip_bit(folder / f"model.ckpt-{step}.data-00000-of-00001", value.tobytes())


def test_damaged_slot_matters_only_to_resume(a_run):
    expected = weights_of(a_run)
    flip_byte_of(a_run, 3, "adagrad/softmax.SW")
    assert latest_checkpoint(a_run).record.step == 3
    assert latest_checkpoint(a_run, only=None).record.step == 2
    assert_same_values(weights_of(a_run), expected)


def test_damaged_weight_is_noticed_if_it_is_selected(a_run):
    flip_byte_of(a_run, 3, "weights/softmax.SW")
    assert latest_checkpoint(a_run).record.step == 2
    assert latest_checkpoint(a_run, only=is_bilm).record.step == 3
    with pytest.raises(WeightsError, match=r"ckpt-3: not a whole checkpoint"):
        Checkpoint(f"{a_run}/model.ckpt-3").check(lambda name: not is_bilm(name))


def test_unlisted_checkpoint_is_read_and_pruned(a_run, tmp_path):
    (a_run / "checkpoint").unlink()  # a kill between a checkpoint and TensorFlow's list
    assert load_run(a_run).n_tokens == 49
    of_user = a_run / "model.ckpt-3.notes"
    of_user.mkdir()
    run(a_run, n_steps=4, checkpoint_steps=1, keep_checkpoints=1)
    assert [path.name for path in a_run.glob("*.index")] == ["model.ckpt-4.index"]
    assert of_user.exists()
    moved = a_run.rename(tmp_path / "moved")
    assert load_run(moved).n_tokens == 49


def test_checkpoints_are_listed_for_tensorflow(a_run):
    (a_run / "checkpoint").write_bytes(b"model_checkpoint_path: 7")  # is not read
    assert run(a_run, 4).step == 4
    assert tf.train.latest_checkpoint(str(a_run)) == f"{a_run}/model.ckpt-4"
