"""A run's checkpoints: how many stay, and what reads them where one is damaged or not listed."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
import tensorflow as tf
from small_disk import small_disk
from tiny_runs import TEXT, damage, run, weights_of

from bilm.errors import WeightsError
from bilm.storage.checkpoint import StoredRun, load_run, load_state
from bilm.storage.checkpoint_folder import CheckpointFolder, checkpoint_paths, read_latest
from bilm.training.finetuning import finetune
from bilm.training.run import Saving
from bilm.training.saved import find_saved

# --- what is kept ---


def test_as_many_checkpoints_as_asked_for_stay(tmp_path):
    run(tmp_path, 6, saving=Saving(steps=2, keep=2))
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "model.ckpt-4.index",
        "model.ckpt-6.index",
    ]


def test_checkpoints_by_time(tmp_path):
    run(tmp_path, 4, saving=Saving(minutes=0.0, keep=9))
    assert len(list(tmp_path.glob("*.index"))) == 4


# --- checkpoints that are not whole ---


WAYS = ["cut", "index cut", "a byte", "empty", "no data", "no index"]


@pytest.mark.parametrize("how", WAYS)
def test_a_checkpoint_that_is_not_whole_is_passed_over(a_run, how, log):
    damage(a_run, 3, how)
    assert find_saved(a_run).step == 2
    assert "model.ckpt-3: not a whole checkpoint" in log.text
    assert f"trying {a_run}/model.ckpt-2, the one before it" in log.text


def test_the_checkpoint_before_a_damaged_one_is_used(tmp_path, log):
    """Of many: each is damaged in a way of its own, and the run ends as if none had been."""
    run(tmp_path, 2 + len(WAYS), saving=Saving(steps=1, keep=99))
    expected = weights_of(tmp_path)
    for step, how in enumerate(WAYS, start=3):
        damage(tmp_path, step, how)
    log.clear()
    run(tmp_path, 2 + len(WAYS))
    for step in range(3, 3 + len(WAYS)):
        assert f"model.ckpt-{step}: not a whole checkpoint" in log.text
    assert "continuing at step 2 of 8" in log.text
    for name, value in weights_of(tmp_path).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_no_whole_checkpoint_is_an_error(a_run):
    for step in range(1, 4):
        damage(a_run, step, "cut")
    with pytest.raises(WeightsError, match=r"model\.ckpt-1: not a whole checkpoint .* no other"):
        run(a_run, 4)


def test_what_an_unfinished_save_left_is_removed(a_run, log):
    (a_run / "model.ckpt-4_temp").mkdir()
    (a_run / "model.ckpt-4_temp" / "part-00000-of-00001.data").write_bytes(b"half")
    assert run(a_run, 4).step == 4
    assert "model.ckpt-4_temp: left by a save that was cut short; removed" in log.text
    assert not list(a_run.glob("*_temp"))


def test_a_full_disk_leaves_the_last_checkpoint(a_run, monkeypatch):
    before = {path.name: path.read_bytes() for path in a_run.glob("model.ckpt*")}
    write = CheckpointFolder.write

    def write_on_small_disk(self, checkpoint, step):
        with small_disk(2_000):
            return write(self, checkpoint, step)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", write_on_small_disk)
        with pytest.raises(WeightsError) as raised:
            run(a_run, 5)
    message = str(raised.value)
    assert f"{a_run}/model.ckpt-4: cannot be saved: " in message and "\n" not in message
    assert message.endswith(f"the last checkpoint: {a_run}/model.ckpt-3")
    assert {path.name: path.read_bytes() for path in a_run.glob("model.ckpt*")} == before
    assert run(a_run, 5).step == 5


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


def test_readers_pass_over_a_checkpoint_without_its_data(a_run):
    latest, before = checkpoint_paths(a_run)[:2]
    for path in a_run.glob(f"{Path(latest).name}.data-*"):
        path.unlink()
    assert StoredRun(a_run).path == before


def test_a_checkpoint_removed_while_it_is_read_gives_way_to_a_newer_one(tmp_path):
    (tmp_path / "model.ckpt-1.index").touch()

    def read(path):
        if path.endswith("-1"):  # a run saves and removes meanwhile
            (tmp_path / "model.ckpt-2.index").touch()
            raise WeightsError(path)
        return path

    assert read_latest(tmp_path, read) == f"{tmp_path}/model.ckpt-2"


# --- the list of checkpoints ---


def test_a_checkpoint_that_is_not_listed_is_used_and_rotated_out(a_run, tmp_path):
    (a_run / "checkpoint").unlink()  # a kill between a checkpoint and TensorFlow's list
    assert load_run(a_run).n_tokens == 49
    run(a_run, n_steps=4, saving=Saving(1, 15.0, 1))
    assert [path.name for path in a_run.glob("*.index")] == ["model.ckpt-4.index"]
    moved = a_run.rename(tmp_path / "moved")
    assert load_run(moved).n_tokens == 49


def test_no_list_is_needed(a_run):
    (a_run / "checkpoint").unlink()
    assert finetune(a_run, TEXT, a_run.parent / "tuned", n_steps=1).finished


def test_a_damaged_list_is_ignored(a_run):
    for content in (b"", b"model_checkpoint_path: 7", b"{" * 99, b"\xff\xfe"):
        (a_run / "checkpoint").write_bytes(content)
        assert find_saved(a_run).step == 3
        assert load_run(a_run).n_tokens == 49
    assert run(a_run, 4).step == 4
    assert tf.train.latest_checkpoint(str(a_run)) == f"{a_run}/model.ckpt-4"


def test_a_list_with_paths_of_another_machine(a_run):
    for path in a_run.glob("model.ckpt-*"):
        path.rename(path.with_name(path.name.replace("model.ckpt-", "model_")))
    (a_run / "checkpoint").write_text('model_checkpoint_path: "/gone/model_3"\n')
    assert load_run(a_run).n_tokens == 49


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
