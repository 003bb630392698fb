"""Words -> context-free vectors of a stored biLM."""

from __future__ import annotations

from collections.abc import Sequence
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
        encoder = options.char_cnn or options.lexicon_encoder
        filters = (encoder and encoder.filters) or ()
        self._widest = max((width for width, _ in filters), default=0)
        self._budget = encoder_budget(filters)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, float32 (n, P).

        Raises: DataError for a word with several blanks, which is probably a text.
        """
        if text := next((word for word in words if len(word.split()) > MAX_PARTS), None):
            raise DataError(
                f"the word {text[:40]!r} contains several blanks; split a text into words"
            )
        if self._alphabet is None:
            return self._model.encode(self._vocab.known_ids(words))
        width = self._model.options.lstm.projection_dim
        vectors: np.ndarray = np.empty((len(words), width), np.float32)
        spelled = self._alphabet(words)  # n, C
        lengths = self._alphabet.lengths(words, spelled)
        lengths = needed_characters(lengths, self._widest, self._alphabet.width)
        for rows, n_rows in batches(lengths, self._budget):
            ids = spelled[rows, : lengths[rows[0]]]
            vectors[rows] = self._model.encode(ids, n_rows)
        return vectors
