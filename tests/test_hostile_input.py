"""Inputs that are damaged or made to do harm: see docs/reliability.md."""

import json
import re
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from fuzz_runs import assert_survives
from stored_files import OPTIONS, WEIGHTS

from bilm import BidirectionalLanguageModel, Elmo
from bilm.errors import WeightsError
from bilm.options import load_model_options
from bilm.sizes import dense_sizes
from bilm.storage.names import load_hdf5, n_words, stored_values
from bilm.storage.tensors import HDF5Tensors

ROOT = Path(__file__).parent.parent
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0"


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one backend does")
@pytest.mark.parametrize(
    ("script", "n_inputs", "kinds"),
    [
        ("fuzz_inputs.py", 200, ["options", "vocabulary", "text", "hdf5", "zip"]),
        pytest.param(
            *("fuzz_manylangs.py", 30, ["state_dict", "zip", "text"]), marks=pytest.mark.slow
        ),
        pytest.param(
            *("fuzz_models.py", 30, ["export", "keras", "run", "embeddings"]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_damaged_inputs(script, n_inputs, kinds):
    assert_survives(script, n_inputs, kinds)


@pytest.fixture
def changed(tmp_path):
    """Give a function that copies the weights and changes a dataset."""

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
        (poison(np.nan), "W_0 holds values that are not finite"),
        (poison(-np.inf), "W_0 holds values that are not finite"),
        (replace(data=np.zeros((2, 3), "f4")), r"W_0 has shape \(2, 3\), the options ask for"),
        (replace(shape=(1 << 40, 4), dtype="f4", chunks=True), "more than the file can hold"),
        (replace(data=h5py.Empty("f4")), "W_0 holds nothing"),
        (replace(data=[b"a"]), r"W_0 holds values of type object, expected numbers"),
        (replace(data=np.zeros(3, "c8")), "W_0 holds values of type complex64"),
        (
            replace(shape=(2, 3), dtype="f4", external=[("other", 0, 24)]),
            "W_0 has its values in another file",
        ),
    ],
)
def test_weights_that_are_refused(change, message, changed):
    path = changed(change)
    with pytest.raises(WeightsError, match=message) as error:
        BidirectionalLanguageModel(OPTIONS, path)
    assert str(error.value).startswith(f"{path}: ") and CELL in str(error.value)


@pytest.mark.parametrize("n_representations", [0, 129, 10**400, 1.5, "1", None])
def test_representations_without_end(n_representations):
    with pytest.raises(ValueError, match=r"n_representations is .*, expected an integer from 1 to"):
        Elmo(OPTIONS, WEIGHTS, n_representations)


def test_a_double_that_is_no_float32(changed):
    with h5py.File(WEIGHTS) as file:
        values = np.full(file[CELL].shape, 1e300)
    with pytest.raises(WeightsError, match="not finite"):
        BidirectionalLanguageModel(OPTIONS, changed(replace(data=values)))


def test_extra_datasets_give_one_warning(changed, caplog):
    def add(file):
        for name in ("extra/a", "extra/b"):
            file[name] = np.zeros(2)

    path = changed(add)
    BidirectionalLanguageModel(OPTIONS, path)
    (record,) = caplog.records
    assert record.getMessage() == f"{path}: 2 datasets are not used: extra/a, extra/b"


@pytest.mark.parametrize("part", [0, 100, 3000, 0.5, -1])
def test_weights_cut_short(part, tmp_path):
    whole = WEIGHTS.read_bytes()
    path = tmp_path / "cut.hdf5"
    path.write_bytes(whole[: int(part * len(whole)) if isinstance(part, float) else part])
    with pytest.raises(WeightsError, match=r"cut\.hdf5: not a whole HDF5 file"):
        BidirectionalLanguageModel(OPTIONS, path)


@pytest.mark.parametrize("value", [np.zeros(3, "f4"), np.zeros((0, 4), "f4"), None])
def test_a_table_that_is_none(value, tmp_path):
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        if value is None:
            file.create_group("embedding")
        else:
            file["embedding"] = value
    with pytest.raises(WeightsError, match=r"w\.hdf5: embedding (has shape|is a group)"):
        n_words(HDF5Tensors(tmp_path / "w.hdf5"))


def test_options_of_a_model_that_no_memory_holds(tmp_path):
    values = json.loads(OPTIONS.read_text())
    values["lstm"]["dim"] = 2**31 - 1
    (tmp_path / "options.json").write_text(json.dumps(values))
    with pytest.raises(WeightsError, match=r"holds [\d,]+ numbers, but the options ask for"):
        BidirectionalLanguageModel(tmp_path / "options.json", WEIGHTS)


@pytest.mark.parametrize("folder", sorted((ROOT / "tests/golden/inference").iterdir()))
def test_numbers_of_a_model(folder):
    model = BidirectionalLanguageModel(folder / "options.json", folder / "weights.hdf5").model
    held = sum(value.size for value in stored_values(model).values())
    assert sum(dense_sizes(load_model_options(folder / "options.json"))) == held
    load_hdf5(model, folder / "weights.hdf5")


def test_nothing_that_runs_code_when_it_is_read():
    """Neither pickle nor what uses it, and Keras' loading stays in its safe mode."""
    unsafe = (
        r"\b(import|from) (pickle|dill|shelve|marshal|joblib)\b|allow_pickle|safe_mode|np\.load\("
        r"|enable_unsafe_deserialization|\beval\(|\bexec\(|torch\.load|yaml\.load"
    )
    for folder in ("bilm", "bin", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(unsafe, path.read_text(encoding="utf-8")), path


def test_the_table_of_faults_names_tests_that_exist():
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text(encoding="utf-8"))
    tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in tests] == []
