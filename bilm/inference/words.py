"""Words -> context-free vectors of a stored biLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bilm.data.alphabets import alphabet_of
from bilm.data.grouping import needed_characters
from bilm.data.marks import BOS, EOS
from bilm.data.tokenization import MAX_PARTS
from bilm.data.vocabulary import vocabulary_of
from bilm.errors import DataError, OptionsError
from bilm.inference.backend import Backend
from bilm.inference.grouping import batches, encoder_budget


class WordVectors:
    """Words -> context-free vectors of a stored biLM.

    Args:
        backend: computes the vectors.
        ids_of: function from words to their ids, int32 (n,), for a model that reads words instead
            of characters.
    Attributes: `marks`, the words that represent the marks of a sentence.
    """

    def __init__(
        self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray] | None = None
    ):
        self._backend, self._ids_of = backend, ids_of
        self._alphabet = alphabet_of(backend.options)
        if self._alphabet is None:
            self.marks = BOS, EOS
            return
        self.marks = self._alphabet.begin, self._alphabet.end
        encoder = backend.options.char_cnn or backend.options.lexicon_encoder
        filters = (encoder and encoder.filters) or ()
        self._widest = max((width for width, _ in filters), default=0)
        self._budget = encoder_budget(filters)

    @classmethod
    def with_vocabulary(cls, backend: Backend, vocab_file: str | Path | None = None) -> WordVectors:
        """Return the vectors of a model, which may read the words of a vocabulary file.

        Raises: OptionsError if the vocabulary is missing; DataError if it does not fit the model.
        """
        if not backend.options.reads_words:
            return cls(backend)
        if vocab_file is None:
            raise OptionsError(
                "this model reads words, not characters; give its vocabulary (--vocab, vocab_file)"
            )
        vocabulary = vocabulary_of(vocab_file, backend.options, backend.n_tokens, (BOS, EOS))
        return cls(backend, vocabulary.known_ids)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, float32 (n, P).

        Raises: DataError for a word with several blanks, which is probably a text.
        """
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
        lengths = needed_characters(lengths, self._widest, self._alphabet.width)
        for rows, n_rows in batches(lengths, self._budget):
            ids = spelled[rows, : lengths[rows[0]]]
            vectors[rows] = self._backend.encode(ids, n_rows)
        return vectors
