"""`BidirectionalLanguageModel` compared with the outputs of the reference, batch by batch."""

import json

import h5py
import numpy as np
import pytest
from conftest import golden_cases
from keras import ops

from bilm import BidirectionalLanguageModel
from bilm.errors import DataError
from bilm.layers.scalar_mix import ScalarMix

ATOL = 1e-5


def batches(expected):
    return [expected[f"batch_{i}"] for i in range(len([k for k in expected if "batch" in k]))]


def check(found, expected):
    np.testing.assert_array_equal(found["lengths"], expected["lengths"])
    np.testing.assert_array_equal(found["mask"], expected["mask"])
    mask = expected["mask"][...][:, None, :, None]
    np.testing.assert_allclose(
        found["lm_embeddings"] * mask, expected["lm_embeddings"] * mask, atol=ATOL
    )


@pytest.fixture(scope="module", params=golden_cases("inference"))
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def model(folder):
    return BidirectionalLanguageModel(
        folder / "options.json", folder / "weights.hdf5", stateful=True
    )


def test_golden_language_model_stateful(folder, model):
    with h5py.File(folder / "expected.hdf5") as expected:
        for batch in batches(expected):
            found = model(batch["char_ids"][...])
            check(found, batch)
            mask = (batch["char_ids"][...] > 0).any(axis=2)
            np.testing.assert_allclose(
                found["token_embeddings"][mask], batch["token_embeddings"][...][mask], atol=ATOL
            )


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
    model = BidirectionalLanguageModel(
        folder / "options.json",
        folder / "weights.hdf5",
        use_character_inputs=False,
        embedding_weight_file=folder / "token_embeddings.hdf5",
        stateful=True,
    )
    with h5py.File(folder / "expected_tokens.hdf5") as expected:
        for batch in batches(expected):
            check(model(batch["token_ids"][...]), batch)


@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize("folder", golden_cases("inference"))
def test_golden_scalar_mix(folder, normalized):
    name, atol = ("mix_norm", 2e-5) if normalized else ("mix_plain", ATOL)
    with h5py.File(folder / "expected.hdf5") as expected:
        l2_coef = float(expected.attrs["l2_coef"])
        for batch in batches(expected):
            mix = ScalarMix(do_layer_norm=normalized, l2_coef=l2_coef)
            layers, mask = batch["lm_embeddings"][...], batch["mask"][...]
            mix.build(layers.shape)
            mix.weights_before_softmax.assign(expected.attrs["mix_W"])
            mix.gamma.assign(expected.attrs["mix_gamma"])
            found = ops.convert_to_numpy(mix(layers, mask=mask))
            np.testing.assert_allclose(found[mask], batch[name][...][mask], atol=atol)
            if not normalized:
                loss = ops.convert_to_numpy(mix.losses[0])
                np.testing.assert_allclose(loss, batch["l2_plain"][()], rtol=1e-5)


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


def test_language_model_accepts_any_batch_size_and_resets_states(tmp_path):
    folder = golden_cases("inference")[0].values[0]
    model = BidirectionalLanguageModel(
        folder / "options.json", folder / "weights.hdf5", max_batch_size=1, stateful=True
    )
    n_chars = json.loads((folder / "options.json").read_text())["char_cnn"]
    n_chars = n_chars["max_characters_per_token"]
    ids = np.random.default_rng(0).integers(1, 262, size=(5, 4, n_chars))
    first = model(ids)["lm_embeddings"]
    assert np.abs(model(ids)["lm_embeddings"] - first).max() > 1e-4
    model.reset_states()
    np.testing.assert_array_equal(model(ids)["lm_embeddings"], first)
