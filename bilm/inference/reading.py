"""What a language model predicts at the places of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from bilm.data.vocabulary import BOS, EOS
from bilm.inference.backend import Backend
from bilm.inference.packing import Packing, in_reading_order, pack, run_windows
from bilm.inference.token_cache import TokenCache
from bilm.inference.words import WordVectors

CACHED_WORDS = 20_000  # number of recently used words whose vectors are cached

Text = list[list[str]]  # sentences that follow one another from zero state
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


class PackedTexts(NamedTuple):
    """Texts in rows: for each direction, in its reading order, the words that it reads and those
    that follow.

    Fields:
        packing: the places of the texts.
        lengths: numbers of predictions of the texts, integer (n,).
        read, following: by direction, numbers of distinct words, int32 (B, T).
    """

    packing: Packing
    lengths: np.ndarray
    read: dict[str, np.ndarray]
    following: dict[str, np.ndarray]

    @classmethod
    def of(cls, texts: Sequence[list[np.ndarray]], directions: Sequence[str]) -> PackedTexts:
        """Pack texts of sentences with their marks, numbers of distinct words, (T + 2,)."""
        lengths = np.array([sum(len(marked) - 1 for marked in text) for text in texts])
        packing = pack(lengths)
        read: dict[str, np.ndarray] = {}
        following: dict[str, np.ndarray] = {}
        for direction in directions:
            ordered = [[in_reading_order(marked, direction) for marked in text] for text in texts]
            inputs = [np.concatenate([marked[:-1] for marked in text]) for text in ordered]
            targets = [np.concatenate([marked[1:] for marked in text]) for text in ordered]
            read[direction] = packing.grid(inputs, np.int32)
            following[direction] = packing.grid(targets, np.int32)
        return cls(packing, lengths, read, following)

    def last_predictions(self, numbers: Sequence[int]) -> list[tuple[int, slice]]:
        """Return the row and the steps of the last predictions of each text, so many of them."""
        places = zip(*self.packing[:2], self.lengths, numbers, strict=True)
        return [(row, slice(start + n - last, start + n)) for row, start, n, last in places]


class TextReader:
    """Runs a language model over texts.

    Args:
        backend: computes the model.
        ids_of: function from words to the ids with which they are predicted, int32 (n,).
    """

    def __init__(self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray]):
        self._backend, self._ids_of = backend, ids_of
        self._vectors = TokenCache(CACHED_WORDS, WordVectors(backend, ids_of))

    def measured(
        self,
        texts: Sequence[Text],
        n_measured: Sequence[int],
        measure: Measure,
        dtype: DTypeLike,
        batch_tokens: int,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield what is measured at the last predictions of each text, by direction and in its
        reading order, (n, ...).

        A direction predicts each word, and then the mark at the end, from what it has read before.

        Args:
            texts: the texts.
            n_measured: for each text, the number of its last predictions that are measured.
            measure: function from outputs of the last layer, float32 (N, P), and the ids of the
                words that follow, int32 (N,), to values, (N, ...).
            dtype: of a value.
            batch_tokens: predictions that are computed at a time.
        """
        # The vectors and ids of the U distinct words, and the texts as numbers of these words
        sentences = chain.from_iterable(texts)
        words = list(dict.fromkeys(chain((BOS, EOS), *sentences)))
        table = self._vectors(words)  # U, P
        ids = self._ids_of(words)  # U
        number_of = {word: number for number, word in enumerate(words)}
        marked = [[_marked(sentence, number_of) for sentence in text] for text in texts]

        # The places of all predictions, and of those that are measured
        packed = PackedTexts.of(marked, self._backend.options.directions)
        is_start = packed.packing.is_start()  # B, T
        last = packed.last_predictions(n_measured)
        is_measured = np.zeros_like(is_start)
        for row, steps in last:
            is_measured[row, steps] = True

        # Their values, one window of steps after another
        values: dict[str, np.ndarray] = {
            direction: np.empty(is_start.shape, dtype) for direction in packed.read
        }
        windows = run_windows(self._backend, table, packed.read, is_start, batch_tokens)
        for steps, layers in windows:
            is_used = is_measured[:, steps]
            for direction, outputs in layers.items():
                hidden = np.asarray(outputs)[-1][is_used]  # B, T, P -> N, P
                following = ids[packed.following[direction][:, steps][is_used]]  # N
                values[direction][:, steps][is_used] = measure(hidden, following)
        for row, steps in last:
            yield {direction: grid[row, steps] for direction, grid in values.items()}


def _marked(sentence: list[str], number_of: dict[str, int]) -> np.ndarray:
    """Return a sentence with its marks as numbers of distinct words, integer (T + 2,)."""
    return np.array([number_of[word] for word in (BOS, *sentence, EOS)])
