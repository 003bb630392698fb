"""Fills gaps in a text: lost words, and lost letters of words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bilm.data.marks import UNK
from bilm.data.tokenization import checked_sentence
from bilm.scoring.exponents import fit_exponents
from bilm.scoring.gaps import MASK, CandidateWords, pattern
from bilm.scoring.memory.prediction import Memory
from bilm.support.progress import progress

N_COMPARED = 40  # candidates with which the whole sentence is scored
N_FITTED = 300  # words that the exponents are fitted to


def n_predictions(tokens: Sequence[str], mask: str = MASK) -> int:
    """Return about how many predictions fill the gaps of a sentence, in a direction."""
    n_gaps = sum(pattern(token, mask) is not None for token in tokens)
    n_comparisons = n_gaps
    if n_gaps > 1:
        n_comparisons += n_gaps * (n_gaps + 1) // 2  # to find the surest ones
    return (len(tokens) + 1) * (1 + n_comparisons * (N_COMPARED + 1))


def n_fitting_predictions(n_sentences: int, n_words: int) -> int:
    """Return about how many predictions fit the exponents to a text, in a direction."""
    if not n_sentences:
        return 0
    n_per_sentence = n_words // n_sentences + 1
    return min(n_words, N_FITTED) * (N_COMPARED + 1) * n_per_sentence


class Candidate(NamedTuple):
    """A word and its probability among the candidates with which the sentence was scored."""

    word: str
    probability: float


class Gap(NamedTuple):
    """A gap of a sentence.

    Fields:
        position: index of the token, from 0.
        token: the token with its mark.
        candidates: the most probable first; empty if no word matches the token.
    """

    position: int
    token: str
    candidates: list[Candidate]


class Comparison(NamedTuple):
    """The n candidates with which the sentence was scored.

    Fields:
        words: the candidates.
        logs: logarithms of the factors that compare them, float64 (n, factors): the probability of
            the sentence in each direction, then the factors of the memory.
    """

    words: list[str]
    logs: np.ndarray


class Filler:
    """Fills gaps with words.

    The candidates that fit best by both sides of a gap are compared by a product of powers: of the
    probability of the whole sentence with the candidate, in each direction of the model, and with a
    memory also of its probability in each view of the memory and of its frequency.

    Args:
        candidates: the words that a gap can be.
        score_words: function from a sentence and a position to the log-probability of each word of
            the vocabulary given both sides, float (V,).
        score_sentences: function from sentences to their log-probabilities by direction, float
            (n, directions).
        exponents: of the product, float64 (factors,).
        memory: memory of the training text; None for none.
    """

    def __init__(
        self,
        candidates: CandidateWords,
        score_words: Callable[[list[str], int], np.ndarray],
        score_sentences: Callable[[Iterable[list[str]]], np.ndarray],
        exponents: np.ndarray,
        memory: Memory | None = None,
    ):
        self.candidates = candidates
        self.exponents = exponents
        self.memory = memory
        self._score_words = score_words
        self._score_sentences = score_sentences

    def fill(self, tokens: Sequence[str], n: int = 10, mask: str = MASK) -> list[Gap]:
        """Return the gaps of a sentence; see `Scorer.fill`."""
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        tokens = checked_sentence(tokens, "the sentence")

        # The words that each gap can be, by position
        allowed = {}
        for i, token in enumerate(tokens):
            if gap := pattern(token, mask):
                allowed[i] = self.candidates.matching(gap, mask)

        # The best words of each gap, given the best words of all others
        text = [UNK if i in allowed else token for i, token in enumerate(tokens)]
        if len(allowed) > 1:
            self._fill_surest_first(text, allowed)
        return [Gap(i, tokens[i], self._best(text, i, allowed[i], n)) for i in allowed]

    def _fill_surest_first(self, text: list[str], allowed: dict[int, np.ndarray]) -> None:
        """Replace each gap of a text by its best word: first the one whose best word is the most
        probable, then the others given this word."""
        remaining = [i for i in allowed if len(allowed[i])]
        while remaining:
            best = {i: self._best(text, i, allowed[i], 1)[0] for i in remaining}
            surest = max(remaining, key=lambda i: best[i].probability)
            text[surest] = best[surest].word
            remaining.remove(surest)

    def _best(self, text: list[str], i: int, allowed: np.ndarray, n: int) -> list[Candidate]:
        """Return the `n` best allowed words at place `i`, whose word in the text has no effect."""
        if not len(allowed):
            return []
        compared = self._compare(text, i, allowed, max(n, N_COMPARED))
        probabilities = np.exp(_normalized(compared.logs @ self.exponents))
        best = np.argsort(-probabilities, kind="stable")[:n]
        return [Candidate(compared.words[k], float(probabilities[k])) for k in best]

    def _compare(self, text: list[str], i: int, allowed: np.ndarray, n: int) -> Comparison:
        """Compare the `n` of A allowed words that fit best by both sides of place `i`."""
        ids = self.candidates.ids[allowed]  # A
        log_sharing = self.candidates.log_sharing[allowed]

        # Probability given both sides: by the model, or by the mean of the model and the memory
        fit = self._score_words(text, i)[ids] - log_sharing  # A
        remembered = np.empty((len(allowed), 0))  # A, factors of the memory
        if self.memory is not None:
            remembered = self.memory.log_probabilities(text, i)[ids] - log_sharing[:, None]
            fit = np.logaddexp(_normalized(fit), _normalized(remembered[:, 0]))
        best = np.argsort(-fit, kind="stable")[:n]  # n

        # Factors of the best ones: the sentence with each of them, and the memory
        words = [self.candidates.words[k] for k in allowed[best]]
        sentences = ([*text[:i], word, *text[i + 1 :]] for word in words)
        totals = self._score_sentences(sentences) - log_sharing[best, None]  # n, directions
        return Comparison(words, np.hstack([totals, remembered[best]]))

    def fit_exponents(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return exponents fitted to words of held-out sentences, with those of this filler as the
        first ones: see `exponents.fit_exponents`."""
        places = [(words, i) for words in sentences for i in range(len(words))]
        chosen = np.random.default_rng(0).permutation(len(places))[:N_FITTED].tolist()
        everything = np.arange(len(self.candidates.words))

        # Factors of the candidates relative to those of the right word, if it is one of them
        relative = []
        with progress("fitting the exponents", "words", len(chosen)) as bar:
            for words, i in (places[k] for k in chosen):
                compared = self._compare([*words], i, everything, N_COMPARED)
                is_right = [word == words[i] for word in compared.words]
                if any(is_right):
                    relative.append(compared.logs - compared.logs[is_right])
                bar.add(1)
        return fit_exponents(relative, self.exponents)


def _normalized(logs: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities that are proportional to exp(logs), (n,)."""
    return logs - np.logaddexp.reduce(logs)
