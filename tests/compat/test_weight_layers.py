import h5py
import numpy as np
import pytest
from conftest import golden_cases
from keras import ops as keras_ops

from bilm.compat.bilm_tf import mix_layer, weight_layers

KINDS = {"mix_plain": {}, "mix_norm": {"do_layer_norm": True}, "mix_top": {"use_top_only": True}}


@pytest.fixture
def ops():
    rng = np.random.default_rng(0)
    mask = np.array([[True, True, False], [True, False, False]])
    layers = rng.normal(size=(2, 3, 3, 4)).astype(np.float32)
    return {"lm_embeddings": layers * mask[:, None, :, None], "mask": mask}


@pytest.mark.parametrize("case", golden_cases("inference"))
def test_golden_weight_layers(case):
    with h5py.File(case / "expected.hdf5") as file:
        batch = file["batch_0"]
        output = {name: batch[name][...] for name in ("lm_embeddings", "mask")}
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
            mixed = keras_ops.convert_to_numpy(found["weighted_op"])
            np.testing.assert_allclose(mixed[mask], batch[kind][...][mask], atol=1e-5)
            if kind == "mix_plain":
                penalty = keras_ops.convert_to_numpy(found["regularization_op"])
                np.testing.assert_allclose(penalty, batch["l2_plain"][()], rtol=1e-5)


def test_weight_layers_shares_weights_by_name(ops):
    def mixed(*arguments, **how):
        return keras_ops.convert_to_numpy(weight_layers(*arguments, **how)["weighted_op"])

    first = mixed("shared", ops)
    mix_layer("shared").gamma.assign(3.0)
    again, other = mixed("shared", ops, reuse=True), mixed("shared/of another", ops)
    np.testing.assert_allclose(again, 3 * first, 1e-6)
    np.testing.assert_array_equal(other, first)


def test_weight_layers_refuses_an_existing_name_without_reuse(ops):
    weight_layers("once", ops)
    with pytest.raises(ValueError, match="'once' exist; pass reuse=True"):
        weight_layers("once", ops)
    with pytest.raises(ValueError, match="no weights named 'never'"):
        weight_layers("never", ops, reuse=True)
