"""A cache of the vectors of words."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np


class TokenCache:
    """The vectors of the words used last. Threads may share it.

    Args:
        size: most words; 0 disables the cache.
        encode: returns the vectors of words, float32 (n, P), also for n = 0.
    """

    def __init__(self, size: int, encode: Callable[[Sequence[str]], np.ndarray]):
        self.size, self._encode = size, encode
        self._lock = Lock()  # not held while words are encoded, which takes long
        self._vectors: OrderedDict[str, np.ndarray] = OrderedDict()  # least recently used first

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of distinct words, float32 (n, P)."""
        with self._lock:
            known = [self._vectors.get(word) for word in words]
            for word, vector in zip(words, known, strict=True):
                if vector is not None:
                    self._vectors.move_to_end(word)
        missing = [i for i, vector in enumerate(known) if vector is None]
        new = self._encode([words[i] for i in missing])
        vectors = dict(zip(missing, new, strict=True))
        with self._lock:
            for i in missing[-self.size :] if self.size else []:
                self._vectors[words[i]] = vectors[i].copy()
            while len(self._vectors) > self.size:
                self._vectors.popitem(last=False)
        rows = [vectors[i] if vector is None else vector for i, vector in enumerate(known)]
        return np.concatenate(rows).reshape(len(words), -1) if rows else new

    def __len__(self) -> int:
        return len(self._vectors)

    def clear(self) -> None:
        """Remove all words."""
        with self._lock:
            self._vectors.clear()
