"""The LSTM on PyTorch equals the scanned cell: values, states and gradients."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("with KERAS_BACKEND=torch: make test-backends", allow_module_level=True)
import torch

from bilm.layers.lstm import LSTM, LSTMCell, scan_cell
from bilm.layers.lstm_equation import LSTMState

BOTH = [(a, b) for a in (False, True) for b in (False, True)]
STEPS, ROWS, INPUT, UNITS, WIDTH = 7, 3, 5, 8, 4
# `golden` is in the names, so that `make test-backends` runs these tests.


def make(projection_dim=WIDTH, precision="float32", frozen=False, clip=0.3):
    keras.utils.set_random_seed(1)
    layer = LSTM(LSTMCell(UNITS, projection_dim, clip, clip and 0.1, precision=precision))
    layer.cell.frozen = frozen
    layer.build((None, None, INPUT))
    return layer


def inputs(projection_dim=WIDTH, seed=0):
    draw = np.random.default_rng(seed)
    shapes = (STEPS, ROWS, INPUT), (ROWS, UNITS), (ROWS, projection_dim)
    x, *state = (torch.tensor(draw.normal(size=s), dtype=torch.float32) for s in shapes)
    state = LSTMState(*state)
    mask, fresh = (torch.tensor(draw.random((STEPS, ROWS)) < share) for share in (0.8, 0.3))
    return x, state, mask, fresh


def assert_equal(found, expected, atol=1e-6):
    outputs, state = found
    for a, b in zip((outputs, *state), (expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=atol)


@pytest.mark.parametrize("projection_dim", [WIDTH, UNITS])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("masked", "reverse"), BOTH)
def test_golden_lstm_on_pytorch_equals_the_scanned_cell(projection_dim, frozen, masked, reverse):
    layer = make(projection_dim, frozen=frozen)
    x, state, mask, fresh = inputs(projection_dim)
    mask, fresh = (mask, fresh) if masked else (None, None)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found = layer(x, state, steps_mask=mask, reverse=reverse, fresh=fresh)
        expected = scan_cell(layer.cell, x, state, mask, reverse, fresh)
        assert_equal(found, expected)


def test_golden_lstm_on_pytorch_without_steps_keeps_the_state():
    layer = make()
    x, state, _, _ = inputs()
    outputs, last = layer(x[:0], state)
    assert outputs.shape == (0, ROWS, WIDTH)
    assert_equal((outputs, last), (outputs, state))


def test_golden_lstm_on_pytorch_in_bfloat16_is_close():
    x, state, _, _ = inputs()
    for frozen in (False, True):
        plain, rounded = make(frozen=frozen), make(precision="bfloat16", frozen=frozen)
        assert_equal(rounded(x, state), plain(x, state), atol=0.02)
        assert_equal(rounded(x, state), scan_cell(rounded.cell, x, state, None, False), atol=0.01)


def test_golden_rows_of_padding_keep_their_state():
    layer = make()
    x, state, _, _ = inputs()
    mask = torch.arange(STEPS)[:, None] < torch.tensor([STEPS, 4, 0])  # the longest row first
    for reverse in (False, True):
        expected = scan_cell(layer.cell, x, state, mask, reverse, None)
        assert_equal(layer(x, state, steps_mask=mask, reverse=reverse), expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_golden_gradients_of_the_lstm_on_pytorch_equal_those_of_the_scanned_cell(reverse):
    layer = make()
    gradients = []
    for run in (layer, None):
        x, state, mask, _ = inputs()
        x.requires_grad_(True)
        state = LSTMState(*(part.requires_grad_(True) for part in state))
        if run is None:
            outputs, last = scan_cell(layer.cell, x, state, mask, reverse)
        else:
            outputs, last = layer(x, state, steps_mask=mask, reverse=reverse)
        loss = (outputs * torch.arange(WIDTH)).sum() + last.cell.sum()
        weights = [variable.value for variable in layer.trainable_variables]
        gradients.append(torch.autograd.grad(loss, [x, *state, *weights]))
    assert len(gradients[0]) == 6
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-5)


def test_golden_changed_weights_are_used_by_the_lstm_on_pytorch():
    layer = make()
    x, state, _, _ = inputs()
    before = layer(x, state)[0].detach().numpy().copy()
    for variable in layer.trainable_variables:
        variable.assign(variable + 0.1)
    after = layer(x, state)
    assert np.abs(after[0].detach().numpy() - before).max() > 1e-3
    assert_equal(after, scan_cell(layer.cell, x, state, None, False))
