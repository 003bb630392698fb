"""`BiLM`: initial values. Tests of golden numbers, padding and windows are in other files."""

import numpy as np
import pytest
from options_examples import CHAR_CNN

from bilm.language_model import BiLM
from bilm.options.model_options import ModelOptions

CHARACTERS = CHAR_CNN | {"filters": [[1, 5], [3, 6]], "max_characters_per_token": 9}
LSTM = {"dim": 8, "projection_dim": 6, "n_layers": 2, "use_skip_connections": True}


def make(char_cnn=CHARACTERS, **kwargs):
    values = {"bidirectional": True, "char_cnn": char_cnn, "lstm": LSTM}
    model = BiLM(ModelOptions.from_dict(values), **kwargs)
    model.build()
    return model


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
