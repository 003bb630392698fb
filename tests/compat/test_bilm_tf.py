"""`BidirectionalLanguageModel` compared with the outputs of the reference, batch by batch."""

import h5py
import numpy as np
import pytest
from conftest import golden_cases, others_slow

from bilm import BidirectionalLanguageModel
from bilm.errors import DataError

ATOL = 1e-5


def batches(expected):
    return [expected[f"batch_{i}"] for i in range(len([k for k in expected if "batch" in k]))]


def check(found, expected):
    np.testing.assert_array_equal(found["lengths"], expected["lengths"])
    np.testing.assert_array_equal(found["mask"], expected["mask"])
    mask = expected["mask"][...][:, None, :, None]
    layers, wanted = (of["lm_embeddings"] * mask for of in (found, expected))
    np.testing.assert_allclose(layers, wanted, atol=ATOL)


@pytest.fixture(scope="module", params=others_slow(golden_cases("inference")))
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def model(folder):
    files = folder / "options.json", folder / "weights.hdf5"
    return BidirectionalLanguageModel(*files, max_batch_size=1, stateful=True)


def test_golden_language_model_stateful(folder, model):
    with h5py.File(folder / "expected.hdf5") as expected:
        for batch in batches(expected):
            found = model(batch["char_ids"][...])
            check(found, batch)
            mask = (batch["char_ids"][...] > 0).any(axis=2)
            vectors, wanted = (of["token_embeddings"][...][mask] for of in (found, batch))
            np.testing.assert_allclose(vectors, wanted, atol=ATOL)


def test_golden_language_model_stateless(folder, model, monkeypatch):
    monkeypatch.setattr(model, "stateful", False)
    model.reset_states()
    with h5py.File(folder / "expected.hdf5") as expected:
        first = batches(expected)[0]
        model(batches(expected)[1]["char_ids"][...])  # leaves no trace
        check(model(first["char_ids"][...]), first)


@pytest.mark.parametrize(
    "folder",
    [c for c in golden_cases("inference") if (c.values[0] / "token_embeddings.hdf5").exists()],
)
def test_golden_language_model_reads_word_ids(folder):
    names = "options.json", "weights.hdf5", "token_embeddings.hdf5"
    options, weights, table = (folder / name for name in names)
    model = BidirectionalLanguageModel(options, weights, False, table, stateful=True)
    with h5py.File(folder / "expected_tokens.hdf5") as expected:
        for batch in batches(expected):
            check(model(batch["token_ids"][...]), batch)


def test_language_model_refuses_ids_of_another_kind():
    folder = golden_cases("inference")[0].values[0]
    model = BidirectionalLanguageModel(folder / "options.json", folder / "weights.hdf5")
    with pytest.raises(DataError, match=r"shape \(2, 4\), but the model reads \(B, T, 50\)"):
        model(np.ones((2, 4), int))
    with pytest.raises(DataError, match="ids from 1 to 262, expected 0 to 261"):
        model(np.full((2, 4, 50), 262) - np.eye(4, 50, dtype=int) * 261)
    with pytest.raises(DataError, match=f"ids from 1 to {2**32 + 1}, expected 0 to 261"):
        model(np.full((2, 4, 50), 1) + np.eye(4, 50, dtype=int) * 2**32)
    for values, found in ((1.5, "float64"), (np.nan, "float64"), (True, "bool"), ("1", "<U1")):
        with pytest.raises(DataError, match=f"ids are {found}, expected integers"):
            model(np.full((2, 4, 50), values))
    with pytest.raises(DataError, match="ids from inf to inf"):
        model(np.full((2, 4, 50), np.inf))
