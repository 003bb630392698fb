"""The cache of the vectors of words."""

import numpy as np

from bilm.inference.words import TokenCache


def test_cache_keeps_recently_used_words():
    asked = []

    def encode(words):
        asked.extend(words)
        return np.array([[float(word), 1.0] for word in words], np.float32).reshape(-1, 2)

    cache = TokenCache(3, encode)
    for words, new in [
        ("123", "123"),
        ("1", ""),
        ("14", "4"),  # 2 goes
        ("13", ""),
        ("2", "2"),  # 4 goes
        ("56789", "56789"),  # 7, 8, 9 stay
        ("987", ""),
        ("1234", "1234"),
    ]:
        np.testing.assert_array_equal(cache(list(words))[:, 0], [float(w) for w in words])
        assert "".join(asked) == new
        assert len(cache._vectors) <= 3
        asked.clear()
    rng = np.random.default_rng(0)
    cache = TokenCache(20, encode)
    for _ in range(100):
        words = [str(i) for i in rng.permutation(40)[: rng.integers(1, 30)]]
        np.testing.assert_array_equal(cache(words)[:, 0], [float(w) for w in words])
