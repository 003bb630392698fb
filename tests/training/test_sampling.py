"""The draws: distinct, keyed, and as often as their distribution says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.layers.sampled_softmax import Negatives
from bilm.training.sampling import draw_negatives, log_uniform_probability


def test_sampler_draws_are_distinct_and_keyed():
    key, targets = (3, 1, 0, 1), np.arange(40)
    first, again = (draw_negatives(500, 200, key, targets) for _ in range(2))
    assert len(set(first.ids)) == 200 and first.ids.max() < 500 and first.ids.min() >= 0
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    for key in [(4, 1, 0, 1), (3, 2, 0, 1), (3, 1, 1, 1), (3, 1, 0, 0)]:
        assert not np.array_equal(draw_negatives(500, 200, key, targets).ids, first.ids)


def test_sampler_expected_counts_match_draws():
    n_draws, drawn, expected = 3000, np.zeros(60), np.zeros(60)
    for step in range(n_draws):
        draws = draw_negatives(60, 20, (0, step, 0, 0), np.arange(60))
        drawn[draws.ids] += 1
        expected += draws.true_expected_count
        own = draws.true_expected_count[draws.ids]
        np.testing.assert_array_equal(draws.sampled_expected_count, own)
    # The formula takes the number of tries as given; that biases it by a few per cent.
    np.testing.assert_allclose(drawn / n_draws, expected / n_draws, atol=0.05)


def drawn_by_sorting(n_tokens, n_samples, key, targets):
    """What `draw_negatives` returns, from sorted draws and without a table of probabilities."""
    random = np.random.Generator(np.random.Philox(key))
    drawn = np.empty(0, np.int64)
    first = drawn
    while len(first) < n_samples:
        uniform = random.random(max(len(drawn), 2 * n_samples))
        words = np.exp(uniform * np.log(n_tokens + 1)).astype(np.int64) - 1
        drawn = np.concatenate([drawn, words % n_tokens])
        _, first = np.unique(drawn, return_index=True)
    first = np.sort(first)[:n_samples]
    n_tries = first[-1] + 1

    def expected_count(ids):
        log_missed = np.log1p(-log_uniform_probability(ids, n_tokens))
        return -np.expm1(n_tries * log_missed).astype(np.float32)

    return Negatives(drawn[first], expected_count(drawn[first]), expected_count(targets))


def assert_drawn_alike(n_tokens, n_samples, key, targets):
    found = draw_negatives(n_tokens, n_samples, key, targets)
    expected = drawn_by_sorting(n_tokens, n_samples, key, targets)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(2, 3000), st.tuples(*[st.integers(0, 2**31)] * 4))
def test_draws_equal_those_by_sorting(data, n_tokens, key):
    n_samples = data.draw(st.integers(1, min(n_tokens - 1, 1 + n_tokens // 2)))
    targets = data.draw(st.lists(st.integers(0, n_tokens - 1), min_size=1, max_size=40))
    assert_drawn_alike(n_tokens, n_samples, key, np.array(targets))


@pytest.mark.parametrize(("n_tokens", "n_samples"), [(34_583, 8192), (793_471, 1024), (100, 99)])
def test_many_draws_equal_those_by_sorting(n_tokens, n_samples):
    targets = np.random.default_rng(0).integers(n_tokens, size=2560)
    assert_drawn_alike(n_tokens, n_samples, (1, 2, 0, 1), targets)
