"""The text of a memory: its places, and their similarity to the context of a prediction.

Features compare a word v of the context with a word u of the text::

    phi(v, u) = [v = u], log(1 / P(v)) / 10 [v = u], and for each affix whether v and u share it

`<UNK>` is not similar to any word, and a mark only to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

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


class RememberedText:
    """The N places of a text of S sentences, in a vocabulary of V words.

    Args:
        ids: integer (N,). `REACH` places around each sentence have the id V, which represents no
            word. The end may be within a sentence.
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
        padded = np.pad(ids, REACH, constant_values=self.nothing)
        self._padded = padded.astype(np.intp)  # NumPy would convert at each use
        self.ids = self.at_offset(0)

        # Places
        self._marks = vocabulary.known_ids((BOS, EOS))
        start, end = self._marks
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

        # Numbers that are equal for equal affixes, (affixes, V + 1)
        self._affixes = np.full((len(AFFIXES), self.nothing + 1), -1)
        for row, letters in zip(self._affixes, AFFIXES, strict=True):
            affixes = [word[letters] for word in vocabulary.words]
            _, row[:-1] = np.unique(affixes, return_inverse=True)

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

    def at_offset(self, offset: int) -> np.ndarray:
        """Return the id at an offset from each place, at most `REACH`: intp (N,)."""
        last = len(self._padded) - REACH
        return self._padded[REACH + offset : last + offset]

    def features(self, view: str, sentence: np.ndarray, place: int) -> np.ndarray:
        """Return phi of a place of a sentence with its marks and of all words u, float32
        (offsets + 1, F, V + 1): at each offset of the view, and in the last row the sum over the
        different words of the sentence. The word at the place has no effect."""
        offsets = OFFSETS[view]
        shape = len(offsets) + 1, 2 + len(AFFIXES), self.nothing + 1
        phi: np.ndarray = np.zeros(shape, np.float32)

        # Words at the offsets
        padded = np.pad(sentence, REACH, constant_values=self.nothing)
        for row, offset in zip(phi[:-1], offsets, strict=True):
            self._add(row, padded[REACH + place + offset])

        # Different words on the sides that the view reads
        left = sentence[1:place]
        right = sentence[place + 1 : -1]
        both = np.concatenate([left, right])
        sides = {"forward": left, "backward": right, "both": both}
        for word in np.unique(sides[view]):
            self._add(phi[-1], word)
        return phi

    def _add(self, phi: np.ndarray, word: int) -> None:
        """Add phi(word, u) of all words u to an array, (F, V + 1)."""
        if word in (self.nothing, self.vocabulary.unk):
            return
        phi[0, word] += 1
        phi[1, word] -= np.log(self.frequencies[word]) / 10
        if word not in self._marks:
            phi[2:] += self._affixes == self._affixes[:, [word]]

    def place_shares(
        self, view: str, weights: np.ndarray, phi: np.ndarray, without_sentence: int | None = None
    ) -> np.ndarray:
        """Return exp(s_i) / sum of exp(s_i) of each place i, float64 (N,), by weighted features of
        a context, see `Memory`. The places of `without_sentence` have the share 0."""
        # Similarity of the context to each word u, at each offset and in the sentence
        tables = np.einsum("kf,kfv->kv", weights, phi)
        *by_offset, in_sentence = tables.astype(np.float32)  # V + 1 each

        # Similarity of the context to each place: by its sentence, then by the words around it
        of_sentences = np.add.reduceat(in_sentence[self.ids], self.starts)  # S
        similarity = of_sentences[self.sentence]  # N
        for table, offset in zip(by_offset, OFFSETS[view], strict=True):
            similarity += table[self.at_offset(offset)]

        # Softmax over the places that may be used
        is_used = self.is_predicted[view]
        if without_sentence is not None:
            is_used = is_used & (self.sentence != without_sentence)
        similarity[~is_used] = -np.inf
        share = np.exp(similarity.astype(np.float64) - similarity.max())
        return share / share.sum()
