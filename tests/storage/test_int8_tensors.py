"""Weights stored in eight bits: written by `bilm export --precision int8`, read as any others."""

import shutil
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
from command_runs import assert_fails
from conftest import golden_cases
from stored_files import CASE

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.export.hdf5 import dump_int8_weights
from bilm.storage.int8_tensors import in_int8
from bilm.storage.names import stored_values
from bilm.storage.stored_model import open_model

SENTENCES = [["She", "saw", "the", "bank", "."], ["café"]]


@pytest.mark.parametrize("folder", golden_cases("inference"))
def test_int8_file_contains_the_weights_within_half_a_step(folder, tmp_path):
    written = dump_int8_weights(folder, tmp_path)
    assert [path.name for path in written] == ["weights_int8.hdf5", "options.json"]
    expected = stored_values(open_model(folder).build())
    found = stored_values(open_model(tmp_path).build())
    assert found.keys() == expected.keys()
    n_rounded = 0
    for name, value in expected.items():
        scales = in_int8({name: value}).get(f"{name}_int8_scales")
        if scales is None:
            np.testing.assert_array_equal(found[name], value)
        else:
            n_rounded += 1
            assert (np.abs(found[name] - value) <= scales / 2 * 1.001).all()
    assert n_rounded


def test_int8_file_of_novels_en_has_a_quarter_of_the_size(tmp_path):
    weights, _ = dump_int8_weights("novels-en", tmp_path)
    assert weights.stat().st_size < 3e6
    expected = ElmoEmbedder("novels-en", backend="numpy").embed_batch(SENTENCES)
    found = ElmoEmbedder(tmp_path, backend="numpy").embed_batch(SENTENCES)
    for x, y in zip(found, expected, strict=True):
        cosines = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
        assert cosines.min() > 0.999


@pytest.mark.clients
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs the extra onnx")
def test_int8_file_gives_the_int8_vectors_of_the_float32_file(tmp_path):
    dump_int8_weights("novels-en", tmp_path)
    expected = ElmoEmbedder("novels-en", precision="int8").embed_batch(SENTENCES)
    for x, y in zip(
        ElmoEmbedder(tmp_path, precision="int8").embed_batch(SENTENCES), expected, strict=True
    ):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_int8_file_has_no_dataset_that_other_programs_would_read_as_float32(tmp_path):
    weights, _ = dump_int8_weights(CASE, tmp_path)
    with h5py.File(weights) as file:
        cell = file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"]
        assert set(cell) >= {"B", "W_0_int8", "W_0_int8_scales"}
        with pytest.raises(KeyError, match="W_0"):
            cell["W_0"]
        assert cell["W_0_int8"].dtype == np.int8


def test_int8_file_with_wrong_scales_is_refused(tmp_path):
    weights, _ = dump_int8_weights(CASE, tmp_path)
    name = "CNN_proj/W_proj_int8_scales"
    with h5py.File(weights, "a") as file:
        scales = file[name][1:]
        del file[name]
        file[name] = scales
    with pytest.raises(WeightsError, match=r"W_proj_int8 is int8 .* expected int8 \(K, N\)"):
        open_model(tmp_path).build()
    with h5py.File(weights, "a") as file:
        del file[name]
    with pytest.raises(WeightsError, match="CNN_proj/W_proj is missing"):
        open_model(tmp_path).build()


def test_int8_export_keeps_the_files_of_its_model(tmp_path):
    model = shutil.copytree(CASE, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    with pytest.raises(ValueError, match=r"weights\.hdf5"):
        dump_int8_weights(model, model / "weights.hdf5")
    dump_int8_weights(model, model)
    assert {path.name: path.read_bytes() for path in model.iterdir() if path.name in before} == (
        before
    )
    assert (model / "weights_int8_options.json").exists()


def test_int8_export_replaces_an_earlier_one_but_no_other_model(tmp_path):
    other, output = (folder.values[0] for folder in golden_cases("inference")[:2])
    files = dump_int8_weights(CASE, tmp_path)
    dump_int8_weights(other, tmp_path)
    assert open_model(tmp_path).options.lstm == open_model(other).options.lstm
    before = [path.read_bytes() for path in files]
    with pytest.raises(ValueError, match=r"weights_int8\.hdf5"):
        dump_int8_weights(tmp_path, tmp_path)  # its own files
    assert [path.read_bytes() for path in files] == before
    model = shutil.copytree(output, tmp_path / "model")
    for _ in range(2):
        dump_int8_weights(model, model)  # beside the weights in float32
    with pytest.raises(ValueError, match=r"model/weights\.hdf5: is a file of the model"):
        dump_int8_weights(CASE, model / "weights.hdf5")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [np.nan, 1e300])
def test_scales_that_are_not_finite_are_refused(tmp_path, factor):
    weights, _ = dump_int8_weights(CASE, tmp_path)
    with h5py.File(weights, "a") as file:
        scales = file.pop("CNN_proj/W_proj_int8_scales")[:]
        file["CNN_proj/W_proj_int8_scales"] = scales.astype(np.float64) * factor
    with pytest.raises(WeightsError, match="CNN_proj/W_proj contains values that are not finite"):
        open_model(tmp_path).build()


def test_int8_export_command(run_here, tmp_path):
    arguments = "--model", CASE, "--precision", "int8", "--output"
    done = run_here("bilm export", *arguments, tmp_path / "small.hdf5")
    assert done.returncode == 0, done.stderr
    files = tmp_path / "small.hdf5", tmp_path / "options.json"
    assert done.stdout == "".join(f"wrote {path}\n" for path in files)
    assert "int8" in run_here("bilm info", tmp_path).stdout
    done = run_here("bilm export", *arguments, tmp_path / "x", "--include_softmax")
    assert_fails(done, "--precision int8 does not write the softmax", status=2)
