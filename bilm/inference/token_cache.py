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
        self.size = size
        self._encode = encode
        self._lock = Lock()  # not held while words are encoded, which takes long
        self._vectors: OrderedDict[str, np.ndarray] = OrderedDict()  # least recently used first

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of distinct words, float32 (n, P)."""
        with self._lock:
            vectors = {word: self._vectors[word] for word in words if word in self._vectors}
            for word in vectors:
                self._vectors.move_to_end(word)

        missing = [word for word in words if word not in vectors]
        encoded = self._encode(missing)
        vectors.update(zip(missing, encoded, strict=True))
        with self._lock:
            for word in missing[-self.size :] if self.size else []:
                self._vectors[word] = vectors[word].copy()
            while len(self._vectors) > self.size:
                self._vectors.popitem(last=False)
        if not words:
            return encoded
        return np.concatenate([vectors[word] for word in words]).reshape(len(words), -1)

    def __len__(self) -> int:
        return len(self._vectors)

    def clear(self) -> None:
        """Remove all words."""
        with self._lock:
            self._vectors.clear()
