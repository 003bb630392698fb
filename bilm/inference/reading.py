"""What a language model predicts at the places of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

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


class TextReader:
    """Runs a language model over texts.

    Args:
        ids_of: function from words to the ids with which they are predicted, int32 (n,).
    """

    def __init__(self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray]):
        self._backend = backend
        self._ids_of = ids_of
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
        lengths = np.array([sum(len(sentence) - 1 for sentence in text) for text in marked])
        packing = pack(lengths)
        is_start = packing.is_start()  # B, T
        is_measured = np.zeros_like(is_start)
        last: list[tuple[int, slice]] = []
        for row, end, n in zip(packing.rows, packing.starts + lengths, n_measured, strict=True):
            last.append((row, slice(end - n, end)))
            is_measured[last[-1]] = True

        read: dict[str, np.ndarray] = {}
        following: dict[str, np.ndarray] = {}
        for direction in self._backend.options.directions:
            read[direction], following[direction] = _grids(packing, marked, direction)

        # Their values, one window of steps after another
        values = {direction: np.empty(is_start.shape, dtype) for direction in read}
        for steps, layers in run_windows(self._backend, table, read, is_start, batch_tokens):
            is_used = is_measured[:, steps]
            for direction, outputs in layers.items():
                hidden = np.asarray(outputs)[-1][is_used]  # B, T, P -> N, P
                targets = ids[following[direction][:, steps][is_used]]  # N
                values[direction][:, steps][is_used] = measure(hidden, targets)
        for row, steps in last:
            yield {direction: grid[row, steps] for direction, grid in values.items()}


def _marked(sentence: list[str], number_of: dict[str, int]) -> np.ndarray:
    """Return a sentence with its marks as numbers of distinct words, integer (T + 2,)."""
    return np.array([number_of[word] for word in (BOS, *sentence, EOS)])


def _grids(
    packing: Packing, texts: list[list[np.ndarray]], direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the words that a direction reads in packed texts, and of those that
    follow, int32 (B, T)."""
    inputs, targets = [], []
    for text in texts:
        ordered = [in_reading_order(sentence, direction) for sentence in text]
        inputs.append(np.concatenate([sentence[:-1] for sentence in ordered]))
        targets.append(np.concatenate([sentence[1:] for sentence in ordered]))
    return packing.grid(inputs, np.int32), packing.grid(targets, np.int32)
