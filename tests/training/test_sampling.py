"""The draws: distinct, keyed, and as often as their distribution says."""

import numpy as np

from bilm.training.sampling import LogUniformSampler


def test_sampler_draws_are_distinct_and_keyed():
    sampler = LogUniformSampler(500, 200, seed=3)
    targets = np.arange(40)
    first, again = sampler.draw((1, 0, 1), targets), sampler.draw((1, 0, 1), targets)
    assert len(set(first.ids)) == 200 and first.ids.max() < 500 and first.ids.min() >= 0
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    for key in [(2, 0, 1), (1, 1, 1), (1, 0, 0)]:
        assert not np.array_equal(sampler.draw(key, targets).ids, first.ids)
    other = LogUniformSampler(500, 200, seed=4).draw((1, 0, 1), targets)
    assert not np.array_equal(other.ids, first.ids)


def test_sampler_expected_counts_match_draws():
    sampler = LogUniformSampler(60, 20, seed=0)
    n_draws, drawn, expected = 3000, np.zeros(60), np.zeros(60)
    for step in range(n_draws):
        draws = sampler.draw((step, 0, 0), np.arange(60))
        drawn[draws.ids] += 1
        expected += draws.true_expected_count
        np.testing.assert_array_equal(
            draws.sampled_expected_count, draws.true_expected_count[draws.ids]
        )
    # The formula takes the number of tries as given; that biases it by a few per cent.
    np.testing.assert_allclose(drawn / n_draws, expected / n_draws, atol=0.05)


def test_sampler_with_nearly_the_whole_vocabulary():
    draws = LogUniformSampler(100, 99, seed=0).draw((0, 0, 0), np.arange(5))
    assert len(set(draws.ids)) == 99
