"""What a language model predicts at the places of texts."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from bilm.data.vocabulary import BOS, EOS
from bilm.inference.backend import Backend, ByDirection
from bilm.inference.packing import READING_ORDER, pack, run_windows
from bilm.inference.words import TokenCache, WordVectors

CACHED_WORDS = 20_000  # number of recently used words whose vectors are cached

Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Text(NamedTuple):
    """Sentences that follow one another from zero state."""

    sentences: list[list[str]]
    n_context: int = 0  # number of first sentences that are only read, not measured

    def n_predictions(self) -> int:
        """Return the number of predictions of a direction: of the words and ends of sentences."""
        return sum(len(words) + 1 for words in self.sentences)


class TextReader:
    """Runs a language model over texts; `ids_of`: words -> ids of the predictions, int32 (n,)."""

    def __init__(self, backend: Backend, ids_of: Callable[[Sequence[str]], np.ndarray]):
        self._backend = backend
        self._ids_of = ids_of
        self._vectors = TokenCache(CACHED_WORDS, WordVectors(backend, ids_of))

    def measured(
        self, texts: Sequence[Text], measure: Measure, batch_tokens: int
    ) -> Iterator[ByDirection]:
        """Yield what is measured at the predictions of each measured sentence, by direction and in
        the order of the sentence, (T + 1, ...). A direction predicts each word, and then the mark
        at the end, from what it has read before.

        `measure` is a function from outputs of the last layer, float32 (N, P), and the ids of the
        words that follow, int32 (N,), to values, (N, ...).
        """
        # The vectors and ids of the U distinct words
        sentences = chain.from_iterable(text.sentences for text in texts)
        words = list(dict.fromkeys(chain((BOS, EOS), *sentences)))
        number_of = {word: number for number, word in enumerate(words)}
        table = self._vectors(words)  # U, P
        ids = self._ids_of(words)  # U

        # What each direction reads, and what follows, as numbers of distinct words
        packing = pack(np.array([text.n_predictions() for text in texts]))
        directions = self._backend.options.directions
        read: ByDirection = {d: np.zeros(packing.shape, np.int32) for d in directions}
        following: ByDirection = {d: np.zeros(packing.shape, np.int32) for d in directions}
        is_measured: np.ndarray = np.zeros(packing.shape, bool)
        measured_places = []
        for text, row, start in zip(texts, packing.rows, packing.starts, strict=True):
            for number, sentence in enumerate(text.sentences):
                stop = start + len(sentence) + 1
                place = row, slice(start, stop)
                start = stop
                marked = np.array([number_of[word] for word in (BOS, *sentence, EOS)])
                for direction in directions:
                    ordered = marked[READING_ORDER[direction]]
                    read[direction][place] = ordered[:-1]
                    following[direction][place] = ordered[1:]
                if number >= text.n_context:
                    is_measured[place] = True
                    measured_places.append(place)

        # The measured values, one window of steps after another
        values: ByDirection = {}
        for steps, layers in run_windows(self._backend, packing, table, read, batch_tokens):
            is_used = is_measured[:, steps]
            for direction, outputs in layers.items():
                last_layer = outputs[-1]  # B, T, P
                next_words = following[direction][:, steps]  # B, T
                measured = measure(last_layer[is_used], ids[next_words[is_used]])  # N, ...
                if direction not in values:
                    shape = *packing.shape, *measured.shape[1:]
                    values[direction] = np.empty(shape, measured.dtype)
                values[direction][:, steps][is_used] = measured
        for place in measured_places:
            yield {d: grid[place][READING_ORDER[d]] for d, grid in values.items()}
