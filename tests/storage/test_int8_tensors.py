"""Weights stored in eight bits: as bilm 0.1.0 exported them, read as any others."""

import h5py
import numpy as np
import pytest
from int8_files import write_int8
from stored_files import CASE

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import WeightsError
from bilm.storage.stored_model import open_model

SENTENCES = [["She", "saw", "the", "bank", "."], ["café"]]


def test_int8_file_of_novels_en_has_a_quarter_of_the_size(tmp_path):
    weights, _ = write_int8("novels-en", tmp_path)
    assert weights.stat().st_size < 3e6
    expected = ElmoEmbedder("novels-en", backend="numpy").embed_batch(SENTENCES)
    found = ElmoEmbedder(tmp_path, backend="numpy").embed_batch(SENTENCES)
    for x, y in zip(found, expected, strict=True):
        cosines = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
        assert cosines.min() > 0.999


def test_int8_file_with_wrong_scales_is_refused(tmp_path):
    weights, _ = write_int8(CASE, tmp_path)
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [np.nan, 1e300])
def test_scales_that_are_not_finite_are_refused(tmp_path, factor):
    weights, _ = write_int8(CASE, tmp_path)
    with h5py.File(weights, "a") as file:
        scales = file.pop("CNN_proj/W_proj_int8_scales")[:]
        file["CNN_proj/W_proj_int8_scales"] = scales.astype(np.float64) * factor
    with pytest.raises(WeightsError, match="CNN_proj/W_proj contains values that are not finite"):
        open_model(tmp_path).build()
