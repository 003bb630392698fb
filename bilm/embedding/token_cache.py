"""Words -> their context-free vectors, with a cache of those used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from bilm.data.vocabulary import BOS, EOS, alphabet_of, shifted, vocabulary_of
from bilm.data.windows import batches, needed_characters
from bilm.embedding.backends import Backend
from bilm.errors import DataError, OptionsError

ENCODER_CHARACTERS = 1 << 14  # most characters that the character CNN reads at a time
ENCODER_BYTES = 1 << 26  # maximum size in bytes of the results of all filters for these characters
MAX_PARTS = 2  # most parts of a word at blanks, as in "10 000"


class WordVectors:
    """Words -> context-free vectors of a stored biLM.

    Args:
        model: computes the vectors.
        vocab_file: one word per line, for a model that reads words instead of characters.
    Attributes: `marks`, the words that represent the marks of a sentence.
    Raises: OptionsError if the vocabulary is missing; DataError if it does not fit the model.
    """

    def __init__(self, model: Backend, vocab_file: str | Path | None = None):
        self._model, options = model, model.options
        self._alphabet, self.marks = alphabet_of(options), (BOS, EOS)
        if self._alphabet is None:
            if vocab_file is None:
                raise OptionsError(
                    "this model reads words, not characters; give its vocabulary (--vocab, "
                    "vocab_file)"
                )
            self._vocab = vocabulary_of(vocab_file, options, model.n_tokens, self.marks)
            return
        self.marks = self._alphabet.begin, self._alphabet.end
        cnn, lexicons = options.char_cnn, options.lexicon_encoder
        filters = cnn.filters if cnn else ()
        if lexicons and lexicons.characters:
            filters = lexicons.filters or ()
        self._widest = max((width for width, _ in filters), default=0)
        n_filters = max(sum(n for _, n in filters), 1)
        self._budget = min(ENCODER_CHARACTERS, ENCODER_BYTES // (4 * n_filters))

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, float32 (n, P).

        Raises: DataError for a word with several blanks, which is probably a text.
        """
        if text := next((word for word in words if len(word.split()) > MAX_PARTS), None):
            raise DataError(
                f"the word {text[:40]!r} contains several blanks; split a text into words"
            )
        if self._alphabet is None:
            return self._model.encode(shifted(self._vocab.known_ids(words)))
        width = self._model.options.lstm.projection_dim
        vectors: np.ndarray = np.empty((len(words), width), np.float32)
        spelled = self._alphabet(words)  # n, C
        lengths = self._alphabet.lengths(words, spelled)
        lengths = needed_characters(lengths, self._widest, self._alphabet.width)
        for rows, n_rows in batches(lengths, self._budget):
            ids = shifted(spelled[rows, : lengths[rows[0]]])
            vectors[rows] = self._model.encode(ids, n_rows)
        return vectors


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
