"""`protect`: an output replaces no file of a run, an export or another stored model."""

import shutil

import pytest
from stored_files import OPTIONS, WEIGHTS

from bilm.errors import DataError
from bilm.storage.stored_model import open_model
from bilm.support.files import protect
from bilm.training.run_folder import RunFolder


def assert_protected(path, folder):
    with pytest.raises(DataError, match=rf"is a file of the model in {folder}; choose another"):
        protect(path)


@pytest.mark.parametrize("weights", ["model.hdf5", "weights.hdf5", "m_weights.hdf5"])
def test_files_of_an_hdf5_model_are_protected(tmp_path, weights):
    shutil.copy(OPTIONS, tmp_path / "options.json")
    shutil.copy(WEIGHTS, tmp_path / weights)
    others = ["vocab.txt", "README.md", "elmo_README.md", "meta.json", "x_softmax.hdf5"]
    for name in others:
        (tmp_path / name).touch()
    open_model(tmp_path)
    for name in ["options.json", weights, *others]:
        assert_protected(tmp_path / name, tmp_path)


def test_files_of_a_run_are_protected(tmp_path):
    run = RunFolder(tmp_path)
    files = [path for name, path in vars(run).items() if name.endswith("_file")]
    assert files
    best = [run.best / "options.json", run.best / "model.ckpt-2.index"]
    for path in (*files, *best, tmp_path / "model.ckpt-3.index", tmp_path / "checkpoint"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in files:
        assert_protected(path, tmp_path)
    for path in best:
        assert_protected(path, run.best)


def test_files_of_a_run_without_checkpoints_are_protected(tmp_path):
    for name in ("options.json", "vocab.txt", ".lock"):
        (tmp_path / name).touch()
    for name in ("options.json", "vocab.txt", ".lock"):
        assert_protected(tmp_path / name, tmp_path)


def test_other_outputs_in_the_folder_of_a_model_are_replaced(tmp_path):
    shutil.copy(OPTIONS, tmp_path / "options.json")
    for name in ("vectors.hdf5", "logs.txt", "vocab.txt"):
        (tmp_path / name).touch()
        protect(tmp_path / name)  # options, but no weights
    shutil.copy(WEIGHTS, tmp_path / "weights.hdf5")
    for name in ("vectors.hdf5", "logs.txt"):
        protect(tmp_path / name)
