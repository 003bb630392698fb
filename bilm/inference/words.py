"""Words -> context-free vectors of a stored biLM, computed in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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
    """Words -> context-free vectors of a stored biLM.

    Args:
        ids_of: function from words to their ids, int32 (n,); required for a model that reads words
            instead of characters.
    Attributes: `marks`, the words that represent the marks of a sentence.
    """

    def __init__(
        self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray] | None = None
    ):
        self._backend = backend
        self._ids_of = ids_of
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


def encoder_budget(filters: Filters) -> int:
    """Return the most characters that a CNN with these filters reads at a time."""
    return min(ENCODER_CHARACTERS, ENCODER_BYTES // (4 * max(n_filters(filters), 1)))


def batches(lengths: np.ndarray, budget: int) -> Iterator[tuple[np.ndarray, int]]:
    """Divide items into batches, the longest first, so that the padded size of each batch does not
    exceed a budget.

    Yields: the indices of a batch's items, and the number of rows to pad it to. Only a few numbers
        are used, because oneDNN compiles and caches code for each shape.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        n_rows = max(budget // int(lengths[order[0]]), 1)
        rows, order = order[:n_rows], order[n_rows:]
        # 1, 2, 4, 8, then multiples of 8, and above 64 of 64.
        step = 64 if len(rows) > 64 else min(1 << (len(rows) - 1).bit_length(), 8)
        yield rows, min(-(-len(rows) // step) * step, n_rows)
