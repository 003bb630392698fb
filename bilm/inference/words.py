"""Words -> context-free vectors of a stored biLM, in batches of similar length, and their cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from bilm.data.alphabets import alphabet_of
from bilm.data.marks import BOS, EOS
from bilm.data.tokenization import MAX_PARTS
from bilm.data.vocabulary import vocabulary_of
from bilm.data.windows import needed_characters
from bilm.errors import DataError, OptionsError
from bilm.inference.backend import Backend
from bilm.tensors import Filters, n_filters

ENCODER_CHARACTERS = 1 << 14  # most characters that the character CNN reads at a time
ENCODER_BYTES = 1 << 26  # maximum size in bytes of the results of all filters for these characters


class WordVectors:
    """Words -> context-free vectors of a stored biLM. `ids_of`: words -> ids, int32 (n,); None if
    the model reads characters. Attributes: `marks`, the words of a sentence's marks."""

    def __init__(
        self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray] | None = None
    ):
        self._backend = backend
        self._ids_of = ids_of
        self._alphabet = alphabet_of(backend.options)
        self.marks = BOS, EOS
        if self._alphabet is not None:
            self.marks = self._alphabet.begin, self._alphabet.end

    @classmethod
    def with_vocabulary(cls, backend: Backend, vocab_file: str | Path | None = None) -> WordVectors:
        """Return the vectors of a model, which may read the words of a vocabulary file. Raises:
        OptionsError if the file is missing; DataError if it does not fit the model."""
        if not backend.options.reads_words:
            return cls(backend)
        if vocab_file is None:
            raise OptionsError(
                "this model reads words, not characters; give its vocabulary (--vocab, vocab_file)"
            )
        vocabulary = vocabulary_of(vocab_file, backend.options, backend.n_tokens, (BOS, EOS))
        return cls(backend, vocabulary.known_ids)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, float32 (n, P). Raises: DataError for a word with several
        blanks, which is probably a text; BilmError if the library would hang after a fork."""
        self._backend.check_process()
        if text := next((word for word in words if len(word.split()) > MAX_PARTS), None):
            raise DataError(
                f"the word {text[:40]!r} contains several blanks; split a text into words"
            )
        if self._alphabet is None:
            assert self._ids_of is not None
            return self._backend.encode(self._ids_of(words))

        # Characters, in batches of words of similar length
        width = self._backend.options.lstm.projection_dim
        vectors: np.ndarray = np.empty((len(words), width), np.float32)
        spelled = self._alphabet(words)  # n, C
        lengths = self._alphabet.lengths(words, spelled)
        for rows, n_read in batches(lengths, self._alphabet.width, self._backend.options.filters):
            vectors[rows] = self._backend.encode(spelled[rows, :n_read])
        return vectors


def most_rows(filters: Filters, width: int) -> int:
    """Return the most words of `width` characters that a CNN with these filters reads at a time."""
    n_bytes = 4 * max(n_filters(filters), 1)  # of the results for a character
    n_characters = min(ENCODER_CHARACTERS, ENCODER_BYTES // n_bytes)
    return max(n_characters // width, 1)


def batches(lengths: np.ndarray, width: int, filters: Filters) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the indices of words of similar length, the longest first, that a CNN with these
    filters reads at a time, and how many of `width` characters it reads of them."""
    widest = max((filter_width for filter_width, _ in filters), default=0)
    needed = needed_characters(lengths, widest, width)
    order = np.argsort(-needed, kind="stable")
    while len(order):
        n_read = int(needed[order[0]])
        n_rows = most_rows(filters, n_read)
        yield order[:n_rows], n_read
        order = order[n_rows:]


class TokenCache:
    """The vectors of the words used last, at most `size`; 0 disables the cache. Threads may share
    it. `encode` returns the vectors of words, float32 (n, P), also for n = 0."""

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
        vectors.update(zip(missing, self._encode(missing), strict=True))
        with self._lock:
            for word in missing[-self.size :]:
                self._vectors[word] = vectors[word].copy()
            while len(self._vectors) > self.size:
                self._vectors.popitem(last=False)
        return np.array([vectors[word] for word in words])

    def clear(self) -> None:
        """Remove all words."""
        with self._lock:
            self._vectors.clear()
