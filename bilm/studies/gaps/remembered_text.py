"""The text of a memory: its places, and their similarity to the context of a prediction.

Features compare a word v of the context with a word u of the text::

    phi(v, u) = [v = u], log(1 / P(v)) / 10 [v = u], and for each affix whether v and u share it

`<UNK>` is not similar to any word, and a mark only to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import numpy as np

from bilm.data import BOS, EOS, Vocabulary, sentence_digest

LEFT = (-4, -3, -2, -1)
RIGHT = (1, 2, 3, 4)
OFFSETS = {  # of the words that each view compares one by one, at most REACH
    "both": LEFT + RIGHT,
    "forward": LEFT,
    "backward": RIGHT,
}
REACH = 4
AFFIXES = (slice(-3, None), slice(-2, None), slice(4))  # letters that words may share
KINDS = np.eye(1 + len(AFFIXES), 2 + len(AFFIXES), 1)  # features of equal words, of equal affixes
KINDS[0, 0] = 1


class Matches(NamedTuple):
    """The features of a context that are not 0, in L lists of similar places of a text.

    Fields:
        rows: integer (L,): number of the offset in the view; the last one is for sentences.
        phi: float64 (L, F): the features, equal in a list.
        cells: integer (M,): the lists, one after the other: places, or N + the number of a sentence
            for each similar word in it.
        lengths: integer (L,): of the lists.
    """

    rows: np.ndarray
    phi: np.ndarray
    cells: np.ndarray
    lengths: np.ndarray


class RememberedText:
    """The N places of a text of S sentences, in a vocabulary of V words.

    Args:
        ids: integer (N,). `REACH` places around each sentence have the id V, which represents no
            word.
        digests: of the sentences, see `sentence_digest`.
    Attributes:
        ids: intp (N,).
        nothing: the id V of a place without a word.
        starts: integer (S,): place of the mark at the start of each sentence.
        sentence: integer (N,): number of the sentence that a place belongs to.
        is_predicted: boolean (N,) by view: whether the view predicts the word at a place. A mark is
            predicted only by the view that reads from the other end of the sentence.
        frequencies: float64 (V,): P(w), with 0.5 added to each count.
        is_rare: boolean (V,): whether a word shares its probability with `<UNK>`, as in training:
            words that occur once do, if the text has no unknown words.
    """

    def __init__(self, ids: np.ndarray, vocabulary: Vocabulary, digests: Set[int] = frozenset()):
        self.vocabulary = vocabulary
        self.digests = digests
        self.nothing = len(vocabulary.words)
        self.ids: np.ndarray = ids.astype(np.intp)  # NumPy would convert at each use

        # Places
        start, end = vocabulary.known_ids((BOS, EOS))
        is_start = self.ids == start
        is_word = ~np.isin(self.ids, [start, end, self.nothing])
        self.starts = np.flatnonzero(is_start)
        self.sentence = np.maximum(np.cumsum(is_start) - 1, 0)
        self.is_predicted = {
            "both": is_word,
            "forward": is_word | (self.ids == end),
            "backward": is_word | is_start,
        }

        # Words
        counts = np.bincount(self.ids, minlength=self.nothing + 1)[:-1]
        smoothed = counts + 0.5
        has_unknown = counts[vocabulary.unk] > 0
        self.frequencies = smoothed / smoothed.sum()
        self.is_rare = (counts == 1) & ~has_unknown

        # Groups of equal words, and of words with equal affixes: integer (V + 1, kinds), 0 for none
        groups: np.ndarray = np.zeros((self.nothing + 1, len(KINDS)), np.intp)
        groups[:-1, 0] = np.arange(1, self.nothing + 1)
        for kind, letters in enumerate(AFFIXES, 1):
            affixes = [word[letters] for word in vocabulary.words]
            _, numbers = np.unique(affixes, return_inverse=True)
            groups[:-1, kind] = groups.max() + 1 + numbers
        groups[[start, end, vocabulary.unk], 1:] = 0
        self._groups = groups

        # The places of each group
        of_places = groups.T[:, self.ids].ravel()
        self._sizes = np.bincount(of_places, minlength=groups.max() + 1)
        order = np.argsort(of_places, kind="stable")
        places = (order % len(self.ids)).astype(np.int32)
        ends = np.cumsum(self._sizes)
        self._places = np.split(places, ends[:-1])
        self._sizes[0] = 0

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], vocabulary: Vocabulary) -> RememberedText:
        """Return the text of sentences."""
        gap: np.ndarray = np.full(REACH, len(vocabulary.words), np.int32)
        pieces = [gap]
        digests = set()
        for tokens in sentences:
            pieces += [vocabulary.encode(tokens), gap]
            digests.add(sentence_digest(tokens))
        return cls(np.concatenate(pieces), vocabulary, digests - {0})

    def places(self, word: int) -> np.ndarray:
        """Return the places of a word, int32 (n,)."""
        return self._places[self._groups[word, 0]]

    def matches(self, view: str, sentence: np.ndarray, place: int) -> Matches:
        """Return the matches of a place of a sentence with its marks, by the words at the offsets
        of the view and the different words of the sentence. The word at the place has no effect."""
        sides = {"forward": sentence[1:place], "backward": sentence[place + 1 : -1]}
        sides["both"] = np.concatenate([*sides.values()])
        offsets = np.array(OFFSETS[view])
        padded = np.pad(sentence, REACH, constant_values=self.nothing)
        at_offsets = padded[REACH + place + offsets]
        words = np.concatenate([at_offsets, np.unique(sides[view])])
        words[words == self.vocabulary.unk] = self.nothing

        # A list of places for each word and kind
        groups = self._groups[words]
        numbers, kinds = np.nonzero(self._sizes[groups])
        groups = groups[numbers, kinds]  # L
        lengths = self._sizes[groups]
        nowhere: np.ndarray = np.empty(0, np.int32)
        lists = [self._places[group] for group in groups]
        places = np.concatenate([nowhere, *lists])  # M
        phi = KINDS[kinds]
        frequencies = self.frequencies[words[numbers]]
        phi[:, 1] *= -np.log(frequencies) / 10

        # The places whose context is similar, at the offsets before the sentence
        rows = np.minimum(numbers, len(offsets))
        n_around = lengths[rows < len(offsets)].sum()
        shifts = np.append(offsets, 0)[rows]  # L
        cells = places - np.repeat(shifts, lengths)  # M
        inside = self.sentence[places[n_around:]]
        cells[n_around:] = len(self.ids) + inside
        return Matches(rows, phi, cells, lengths)

    def place_shares(
        self, weights: np.ndarray, matches: Matches, is_used: np.ndarray
    ) -> np.ndarray:
        """Return exp(s_i) / sum of exp(s_i) of each place i that is used, or else 0, float64 (N,),
        by weighted features of a context, see `Memory`. `is_used`: boolean (N,)."""
        # Sums of the weighted features of each cell
        weighted = weights[matches.rows] * matches.phi  # L, F
        by_cell: np.ndarray = np.repeat(weighted.sum(axis=1), matches.lengths)  # M
        n_places = len(self.ids)
        n_cells = n_places + len(self.starts)
        sums = np.bincount(matches.cells, by_cell, n_cells).astype(float)  # integer without cells

        of_places, of_sentences = np.split(sums, [n_places])
        similarity = of_places + of_sentences[self.sentence]
        similarity[~is_used] = -np.inf
        share = np.exp(similarity - similarity.max())
        return share / share.sum()
