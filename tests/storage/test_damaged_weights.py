"""Damaged and malicious HDF5 weights: see docs/reliability.md."""

import h5py
import numpy as np
import pytest
from stored_files import OPTIONS, WEIGHTS

from bilm import BidirectionalLanguageModel
from bilm.errors import WeightsError
from bilm.storage.stored_model import open_model
from bilm.storage.stored_tensors import hdf5_tensors

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"


@pytest.fixture
def changed(tmp_path):
    """Return a function that copies the weights and changes a dataset."""

    def copy(change):
        path = tmp_path / "changed.hdf5"
        path.write_bytes(WEIGHTS.read_bytes())
        with h5py.File(path, "a") as file:
            change(file)
        return path

    return copy


def replace(**arguments):
    def change(file):
        del file[CELL]
        file.create_dataset(CELL, **arguments)

    return change


def poison(number):
    def change(file):
        file[CELL][0, 0] = number

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.pop(CELL), "W_0 is missing"),
        (poison(np.nan), "W_0 contains values that are not finite"),
        (poison(-np.inf), "W_0 contains values that are not finite"),
        (replace(data=np.zeros((2, 3), "f4")), r"W_0 has shape \(2, 3\), but the options require"),
        (replace(data=h5py.Empty("f4")), "W_0 contains nothing"),
        (replace(data=[b"a"]), r"W_0 has shape \(1,\), but the options require"),
        (replace(data=np.zeros(3, "c8")), "W_0 contains values of type complex64"),
        (
            replace(shape=(2, 3), dtype="f4", external=[("other", 0, 24)]),
            "W_0 stores its values in another file",
        ),
    ],
)
def test_damaged_dataset_is_refused_by_name(change, message, changed):
    path = changed(change)
    with pytest.raises(WeightsError, match=message) as error:
        BidirectionalLanguageModel(OPTIONS, path)
    assert str(error.value).startswith(f"{path}: ") and CELL in str(error.value)


@pytest.mark.parametrize("name", ["weights.hdf5", "weights.th", "m.zip", "model.ckpt-1.index"])
def test_file_that_a_clone_or_download_left_is_named(name, tmp_path):
    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    given = (tmp_path / name,) if name.startswith("m.") else (OPTIONS, tmp_path / name)
    with pytest.raises(WeightsError, match=r"a Git LFS pointer .*; run git lfs pull") as error:
        _ = open_model(*given).tensors
    assert str(error.value).startswith(str(tmp_path / name.removesuffix(".index")))


def test_unused_datasets_give_one_warning(changed, caplog):
    def add(file):
        for name in ("extra/a", "extra/b"):
            file[name] = np.zeros(2)

    path = changed(add)
    BidirectionalLanguageModel(OPTIONS, path)
    (record,) = caplog.records
    assert record.getMessage() == f"{path}: the model does not use 2 datasets: extra/a, extra/b"


@pytest.mark.parametrize("value", [np.zeros(3, "f4"), np.zeros((0, 4), "f4"), None])
def test_damaged_embedding_table_is_refused(value, tmp_path):
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        if value is None:
            file.create_group("embedding")
        else:
            file["embedding"] = value
    with pytest.raises(WeightsError, match=r"embedding (has shape|is missing)"):
        _ = hdf5_tensors(tmp_path / "w.hdf5").n_words
