"""Words -> their vectors, each computed once and kept while it is in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np


class TokenCache:
    """The vectors of the words used last.

    Args:
        size: how many words are kept at most; 0 keeps none. A word takes 4 bytes a feature.
        encode: gives the vectors of words, float32 (n, P), n being 0 too.
    """

    def __init__(self, size: int, encode: Callable[[Sequence[str]], np.ndarray]):
        self.size, self._encode = size, encode
        self.clear()

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Give the vectors of distinct words, float32 (n, P)."""
        places = np.array([self._places.get(word, -1) for word in words])
        missing, found = np.flatnonzero(places < 0), np.flatnonzero(places >= 0)
        new = self._encode([words[i] for i in missing])
        vectors = np.empty((len(words), new.shape[1]), np.float32)
        vectors[missing] = new
        if len(found):
            vectors[found] = self._rows[places[found]]
        for i in found:
            self._places.move_to_end(words[i])
        kept = missing[-self.size :] if self.size else missing[:0]
        self._keep([words[i] for i in kept], vectors[kept])
        return vectors

    def __len__(self) -> int:
        return len(self._places)

    def clear(self) -> None:
        """Forget every word."""
        self._places: OrderedDict[str, int] = OrderedDict()  # the first was used longest ago
        self._rows = np.empty((0, 0), np.float32)

    def _keep(self, words: Sequence[str], vectors: np.ndarray) -> None:
        """Take words in, in the places of those used longest ago once there are too many."""
        n_before = len(self._places)
        n_out = max(n_before + len(words) - self.size, 0)
        n_after = n_before + len(words) - n_out
        if n_after > len(self._rows):  # double, so that rows are copied seldom
            rows = np.empty((min(2 * n_after, self.size), vectors.shape[1]), np.float32)
            rows[:n_before] = self._rows[:n_before].reshape(n_before, -1)
            self._rows = rows
        places = [self._places.popitem(last=False)[1] for _ in range(n_out)]
        places += range(n_before, n_after)
        if words:
            self._rows[places] = vectors
            self._places.update(zip(words, places, strict=True))
