"""Fills gaps in a text: lost words, and lost letters of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from bilm.data.marks import UNK
from bilm.data.tokenization import checked_sentence
from bilm.scoring.memory.fitting import fit_exponents
from bilm.scoring.memory.prediction import Memory
from bilm.scoring.predicted_words import PredictedWords
from bilm.scoring.scores import Score
from bilm.support.progress import progress

MASK = "[MASK]"
LOST = re.compile(r"\[(\.+|-+)\]")  # a dot for each lost letter, dashes for an unknown number
N_COMPARED = 40  # candidates with which the whole sentence is scored
N_FITTED = 300  # words that the exponents are fitted to
# Exponents before they are fitted, about the mean of fitted ones
MODEL_EXPONENT = 0.6  # divided among the directions of the model
MEMORY_EXPONENTS = (0.2, 0.5, 0.5, -0.9)  # of the views of the memory and of word frequency


def pattern(token: str, mask: str = MASK) -> re.Pattern[str] | None:
    """Return the pattern of the words, in NFC, that a token with a gap can be; None without a gap.

    A gap is the mask, or letters in brackets: `ki[..]g` lacks two letters, and `k[---]` lacks an
    unknown number of them, at least one.
    """
    if token == mask:
        return re.compile(".+")
    first, *rest = LOST.split(normalize("NFC", token))
    if not rest:
        return None
    expression = re.escape(first)
    for lost, kept in zip(rest[::2], rest[1::2], strict=True):
        letters = f".{{{len(lost)}}}" if "." in lost else ".+"
        expression += letters + re.escape(kept)
    return re.compile(expression)


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


class Filler:
    """Fills gaps with words.

    The candidates that fit best by both sides of a gap are compared::

        P(candidate) is proportional to the product of factor ** exponent

    The factors are the probability of the whole sentence with the candidate in each direction of
    the model, and with a memory also the candidate's probability in each view of the memory and its
    frequency.

    Args:
        vocabulary: the words of the model.
        log_probabilities, score: methods of a `Scorer`.
        others: candidates besides the vocabulary.
        exponents: of the factors, float64 (factors,).
        memory: memory of the training text; None for none.
    """

    def __init__(
        self,
        vocabulary: PredictedWords,
        log_probabilities: Callable[[list[str], list[int]], Iterator[dict[str, np.ndarray]]],
        score: Callable[[Iterable[list[str]]], Iterator[Score]],
        others: Iterable[str],
        exponents: np.ndarray,
        memory: Memory | None = None,
    ):
        self.exponents = exponents
        self.memory = memory
        self._vocabulary = vocabulary
        self._log_probabilities = log_probabilities
        self._score = score

        # Words that can be candidates: those of the vocabulary, and others; no marks of gaps
        proper = [vocabulary.words[i] for i in vocabulary.proper.tolist()]
        known = [word for word in proper if pattern(word) is None]
        in_vocabulary = {normalize("NFC", word) for word in vocabulary.words}
        new = [word for word in set(others) if normalize("NFC", word) not in in_vocabulary]
        unknown = sorted(word for word in new if pattern(word) is None)

        # The C candidates. The others share the probability of `<UNK>` with all missing words.
        self.words = known + unknown
        self._normalized = [normalize("NFC", word) for word in self.words]
        self._ids = vocabulary.ids(self.words)  # C
        self._log_sharing = np.zeros(len(self.words))  # C
        self._log_sharing[len(known) :] = np.log(len(unknown) + 1)

    def fill(self, tokens: Sequence[str], n: int = 10, mask: str = MASK) -> list[Gap]:
        """Return the gaps of a sentence; see `Scorer.fill`."""
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        tokens = checked_sentence(tokens, "the sentence")

        # The candidates that each gap can be, by position
        allowed = {}
        for i, token in enumerate(tokens):
            if gap := pattern(token, mask):
                is_match = [w != mask and bool(gap.fullmatch(w)) for w in self._normalized]
                allowed[i] = np.flatnonzero(is_match)

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
        words, factors = self._compare(text, i, allowed, max(n, N_COMPARED))
        probabilities = np.exp(_normalized(factors @ self.exponents))
        best = np.argsort(-probabilities, kind="stable")[:n]
        return [Candidate(words[k], float(probabilities[k])) for k in best]

    def _compare(
        self, text: list[str], i: int, allowed: np.ndarray, n: int
    ) -> tuple[list[str], np.ndarray]:
        """Return the `n` of A allowed words that fit best by both sides of place `i`, and the
        logarithms of their factors, float64 (n, factors)."""
        ids = self._ids[allowed]  # A
        log_sharing = self._log_sharing[allowed, None]  # A, 1

        # Probability given both sides: by the model, or by the mean of the model and the memory
        logs = next(self._log_probabilities(text, [i]))
        predicted = self._vocabulary.both_sides(logs, has_unknown=True)  # V
        fit = predicted[ids] - log_sharing[:, 0]  # A
        remembered = np.empty((len(allowed), 0))  # A, factors of the memory
        if self.memory is not None:
            remembered = self.memory.log_probabilities(text, i)[ids] - log_sharing
            by_memory = remembered[:, 0]
            fit = np.logaddexp(_normalized(fit), _normalized(by_memory))
        best = np.argsort(-fit, kind="stable")[:n]  # n

        # Factors of the best ones: the sentence with each of them, and the memory
        words = [self.words[k] for k in allowed[best]]
        sentences = ([*text[:i], word, *text[i + 1 :]] for word in words)
        totals = [list(score.total.values()) for score in self._score(sentences)]
        by_model = np.array(totals) - log_sharing[best]  # n, directions
        return words, np.hstack([by_model, remembered[best]])

    def fit_exponents(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return exponents fitted to words of held-out sentences, from those of this filler."""
        places = [(words, i) for words in sentences for i in range(len(words))]
        chosen = np.random.default_rng(0).permutation(len(places))[:N_FITTED].tolist()
        everything = np.arange(len(self.words))

        # Factors of the candidates relative to those of the right word, if it is one of them
        relative = []
        with progress("fitting the exponents", "words", len(chosen)) as bar:
            for number in bar.over(chosen):
                sentence, i = places[number]
                words, factors = self._compare([*sentence], i, everything, N_COMPARED)
                if sentence[i] in words:
                    relative.append(factors - factors[words.index(sentence[i])])
        return fit_exponents(relative, self.exponents)


def _normalized(logs: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities that are proportional to exp(logs), (n,)."""
    return logs - np.logaddexp.reduce(logs)


def first_exponents(n_directions: int, has_memory: bool) -> np.ndarray:
    """Return the exponents before they are fitted, float64 (factors,); without a memory, the
    product is the geometric mean over the directions."""
    if not has_memory:
        return np.full(n_directions, 1 / n_directions)
    return np.array([MODEL_EXPONENT / n_directions] * n_directions + [*MEMORY_EXPONENTS])


# --- number of predictions, which decides on the backend ---


def n_predictions(tokens: Sequence[str], mask: str = MASK) -> int:
    """Return about how many predictions fill the gaps of a sentence, in a direction."""
    n_gaps = sum(pattern(token, mask) is not None for token in tokens)
    n_comparisons = n_gaps
    if n_gaps > 1:
        n_comparisons += n_gaps * (n_gaps + 1) // 2  # to find the surest ones
    return (len(tokens) + 1) * (1 + n_comparisons * (N_COMPARED + 1))


def n_fitting_predictions(n_sentences: int, n_words: int) -> int:
    """Return about how many predictions fit the exponents to a text, in a direction."""
    n_per_sentence = n_words // max(n_sentences, 1) + 1
    return min(n_words, N_FITTED) * (N_COMPARED + 1) * n_per_sentence
