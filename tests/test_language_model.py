"""`BiLM`: parameter counts, initial values, padding, carried states."""

import dataclasses

import numpy as np
import pytest
from keras import ops
from options_examples import CHAR_CNN

from bilm.language_model import BiLM
from bilm.options.model_options import ModelOptions

CHARACTERS = CHAR_CNN | {"filters": [[1, 5], [3, 6]], "max_characters_per_token": 9}
LSTM = {"dim": 8, "projection_dim": 6, "n_layers": 2, "use_skip_connections": True}


def make(bidirectional=True, char_cnn=CHARACTERS, lstm=LSTM, **kwargs):
    values = {"bidirectional": bidirectional, "char_cnn": char_cnn, "lstm": lstm}
    model = BiLM(ModelOptions.from_dict(values), **kwargs)
    model.build()
    return model


def test_language_model_shares_the_table_with_the_softmax():
    options = ModelOptions.from_dict(
        {"bidirectional": True, "lstm": LSTM, "share_embedding_softmax": True}
    )
    shared = BiLM(options, n_tokens=11, softmax=True)
    shared.build()
    separate = BiLM(
        dataclasses.replace(options, share_embedding_softmax=False), n_tokens=11, softmax=True
    )
    separate.build()
    assert separate.count_params() - shared.count_params() == 11 * 6
    assert shared.softmax.kernel is shared.encoder.embedding


@pytest.mark.parametrize("bidirectional", [True, False])
def test_language_model_rows_are_independent_of_padding_and_neighbours(bidirectional):
    model = make(bidirectional, padding=True)
    ids = np.random.default_rng(0).integers(1, 262, size=(3, 7, 9))
    ids[1, 4:] = 0
    together = ops.convert_to_numpy(model(ids)["layers"])
    alone = ops.convert_to_numpy(model(ids[1:2, :4])["layers"])
    np.testing.assert_allclose(together[1, :, :4], alone[0], atol=1e-6)
    assert together.shape == (3, 3, 7, 12 if bidirectional else 6)


def test_language_model_windows_with_carried_state_equal_one_window():
    model = make(softmax=True, n_tokens=5)
    rng = np.random.default_rng(1)
    vectors = {d: ops.cast(rng.normal(size=(2, 6, 6)), "float32") for d in model.directions}
    whole, end = model.windows(vectors, model.zero_state(2))
    state, parts = model.zero_state(2), []
    for t in (slice(0, 2), slice(2, 6)):
        out, state = model.windows({d: v[:, t] for d, v in vectors.items()}, state)
        parts.append(out)
    for d in model.directions:
        for layer in range(2):
            joined = ops.concatenate([part[d][layer] for part in parts], axis=1)
            np.testing.assert_allclose(
                ops.convert_to_numpy(joined), ops.convert_to_numpy(whole[d][layer]), atol=1e-6
            )
    assert len(state) == 8
    for found, expected in zip(state, end, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(found), ops.convert_to_numpy(expected), atol=1e-6
        )


def test_language_model_initial_values():
    """As in the reference; every bias 0 but the highway gate's."""
    model = make(softmax=True, n_tokens=2000)
    encoder, cell = model.encoder, model.stacks["forward"].layers[0].cell
    assert np.abs(encoder.cnn.embedding.numpy()).max() <= 1
    assert np.abs(encoder.cnn.kernels[1].numpy()).max() <= 0.05
    _, gate_bias, _, bias = encoder.highway.layers[0]
    assert (gate_bias.numpy() == -2).all()
    assert (bias.numpy() == 0).all()
    assert (cell.bias.numpy() == 0).all()
    limit = np.sqrt(6 / (12 + 32))
    assert 0.9 * limit < np.abs(cell.kernel.numpy()).max() <= limit
    assert model.softmax.kernel.numpy().std() == pytest.approx(6**-0.5, rel=0.05)
    drawn = [w.numpy() for w in make(char_cnn=CHARACTERS | {"n_highway": 2}).weights]
    drawn = [w for w in drawn if w.std() > 0]
    for i, w in enumerate(drawn):  # an initializer used twice would give the same numbers twice
        assert not any(w.shape == v.shape and (w == v).all() for v in drawn[:i])
    tanh = make(char_cnn=CHARACTERS | {"activation": "tanh", "filters": [[3, 999]]})
    assert tanh.encoder.cnn.kernels[0].numpy().std() == pytest.approx((3 * 4) ** -0.5, rel=0.05)
