"""The draws: distinct, keyed, and as often as their distribution says."""

import numpy as np

from bilm.training.sampling import draw_negatives


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
        np.testing.assert_array_equal(
            draws.sampled_expected_count, draws.true_expected_count[draws.ids]
        )
    # The formula takes the number of tries as given; that biases it by a few per cent.
    np.testing.assert_allclose(drawn / n_draws, expected / n_draws, atol=0.05)


def test_sampler_with_nearly_the_whole_vocabulary():
    draws = draw_negatives(100, 99, (0, 0, 0, 0), np.arange(5))
    assert len(set(draws.ids)) == 99
