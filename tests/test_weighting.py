import h5py
import numpy as np
import pytest
from conftest import golden_cases

from bilm import BidirectionalLanguageModel
from bilm.errors import DataError
from bilm.weighting import mix_layer, weight_layers

KINDS = {"mix_plain": {}, "mix_norm": {"do_layer_norm": True}, "mix_top": {"use_top_only": True}}


@pytest.fixture
def ops():
    rng = np.random.default_rng(0)
    mask = np.array([[True, True, False], [True, False, False]])
    layers = rng.normal(size=(2, 3, 3, 4)).astype(np.float32)
    return {"lm_embeddings": layers * mask[:, None, :, None], "mask": mask}


@pytest.mark.parametrize("case", golden_cases("inference"))
def test_golden_mixes(case):
    model = BidirectionalLanguageModel(case / "options.json", case / "weights.hdf5")
    with h5py.File(case / "expected.hdf5") as file:
        batch = file["batch_0"]
        output = model(batch["char_ids"][...])
        for kind, how in KINDS.items():
            name = f"{case.name}/{kind}"
            l2_coef = None if kind == "mix_top" else float(file.attrs["l2_coef"])
            weight_layers(name, output, l2_coef=l2_coef, **how)
            layer = mix_layer(name)
            gamma = layer.gamma
            gamma.assign(np.reshape(file.attrs["mix_gamma"], ()))
            if kind != "mix_top":
                layer.weights_before_softmax.assign(file.attrs["mix_W"])
            found = weight_layers(name, output, l2_coef, reuse=True, **how)
            mask = batch["mask"][...].astype(bool)
            # The normalized mix magnifies what the layers' own tolerance of 1e-5 allows.
            atol = 5e-5 if kind == "mix_norm" else 1e-5
            np.testing.assert_allclose(
                np.asarray(found["weighted_op"])[mask], batch[kind][...][mask], atol=atol
            )
            if kind == "mix_plain":
                penalty = float(batch["l2_plain"][()])
                assert float(found["regularization_op"]) == pytest.approx(penalty, rel=1e-5)


def test_the_same_name_shares_its_weights(ops):
    first = weight_layers("shared", ops)
    mix_layer("shared").gamma.assign(3.0)
    again = weight_layers("shared", ops, reuse=True)
    np.testing.assert_allclose(again["weighted_op"], 3 * np.asarray(first["weighted_op"]), 1e-6)
    other = weight_layers("shared/of another", ops)
    np.testing.assert_array_equal(other["weighted_op"], first["weighted_op"])


def test_a_name_is_new_or_reused(ops):
    weight_layers("once", ops)
    with pytest.raises(ValueError, match="'once' exist; pass reuse=True"):
        weight_layers("once", ops)
    with pytest.raises(ValueError, match="no weights named 'never'"):
        weight_layers("never", ops, reuse=True)


def test_no_penalty_without_a_coefficient(ops):
    assert float(weight_layers("free", ops)["regularization_op"]) == 0
    assert float(weight_layers("top", ops, 1.0, use_top_only=True)["regularization_op"]) == 0


def test_what_no_model_returns_is_refused(ops):
    with pytest.raises(DataError, match="expected the dict"):
        weight_layers("wrong", ops["lm_embeddings"])


def test_each_call_says_how_its_layers_are_weighted(ops):
    weight_layers("how", ops)
    mix_layer("how").weights_before_softmax.assign([1.0, 2.0, 3.0])
    found = weight_layers("how", ops, l2_coef=1.0, reuse=True)
    assert float(found["regularization_op"]) == 14
    top = weight_layers("how", ops, use_top_only=True, reuse=True)["weighted_op"]
    np.testing.assert_array_equal(top, ops["lm_embeddings"][:, -1])


def test_a_refused_call_takes_no_name(ops):
    with pytest.raises(DataError, match=r"has shape \(2, 3, 3\) and mask"):
        weight_layers("late", ops | {"lm_embeddings": ops["lm_embeddings"][..., 0]})
    weight_layers("late", ops)
    with pytest.raises(DataError, match="are for 3 layers, but lm_embeddings has 2"):
        weight_layers("late", ops | {"lm_embeddings": ops["lm_embeddings"][:, 1:]}, reuse=True)
