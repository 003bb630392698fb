"""Fills gaps in a text: lost words, and lost letters of words."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from absl import logging

from bilm.data.gap_marks import MASK, pattern, unread_marks
from bilm.data.marks import UNK
from bilm.data.tokenization import checked_sentence
from bilm.scoring.memory.fitting import fit_exponents
from bilm.scoring.memory.prediction import Memory
from bilm.scoring.predicted_words import PredictedWords
from bilm.scoring.scores import Logs, Score
from bilm.support.progress import Progress

N_COMPARED = 40  # candidates with which the whole sentence is scored
MAX_COMPARED = 1000  # if more of them fit as well as the last
ROUNDING = 1e-6  # difference between equal logarithms, or between equal probabilities in relation
N_NAMED = 3  # warnings of a problem
UNREAD, UNFILLED = "tokens that look like gaps, but are not", "gaps without a candidate"
TIED, CUT = "gaps with equally probable words", "words left out of comparisons"
PROBLEMS = {
    UNREAD: "not read as a gap. A gap is one token: [MASK] or the value of --mask (argument mask), "
    "ki[..]g with a dot for each lost letter, or k[---]; separate punctuation with a blank",
    UNFILLED: "no word of the vocabulary or of --words matches; separate punctuation with a blank",
    TIED: "some of the best words are equally probable, so their order has no meaning. If the "
    "model reads whole words, all words that its vocabulary lacks are equal",
    CUT: f"not compared, although as likely by both sides of a gap as the last of the "
    f"{MAX_COMPARED:,} words that are compared; reduce --words (argument words)",
}
N_FITTED = 300  # words that the exponents are fitted to
# Exponents before they are fitted, about the mean of fitted ones
MODEL_EXPONENT = 0.6  # divided among the directions of the model
MEMORY_EXPONENTS = (0.2, 0.5, 0.5, -0.9)  # of the factors in `Memory.log_probabilities`


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
        log_probabilities, score: methods of a `Scorer`.
        others: candidates besides the vocabulary.
        exponents: of the factors, float64 (factors,).
    Attributes: `counts`, of gaps and of each of `PROBLEMS`; the first `N_NAMED` are also logged.
    """

    def __init__(
        self,
        vocabulary: PredictedWords,
        log_probabilities: Callable[[list[str], list[int]], Iterator[Logs]],
        score: Callable[[Iterable[list[str]]], Iterator[Score]],
        others: Iterable[str],
        exponents: np.ndarray,
        memory: Memory | None = None,
    ):
        self.exponents = exponents
        self.memory = memory
        self.counts: Counter[str] = Counter(gaps=0)
        self._vocabulary = vocabulary
        self._log_probabilities = log_probabilities
        self._score = score

        # Words that can be candidates, of the vocabulary and others; no marks of gaps
        proper = [vocabulary.words[i] for i in vocabulary.proper.tolist()]
        known = [word for word in proper if pattern(word) is None]
        in_vocabulary = {normalize("NFC", word) for word in vocabulary.words}
        others = checked_sentence([*others] if isinstance(others, Set) else others, "words")
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
        ranked = {i: self._ranked(text, i, allowed[i], n) for i in allowed}
        gaps = [Gap(i, tokens[i], ranked[i][:n]) for i in allowed]

        # Problems
        self.counts["gaps"] += len(gaps)
        self._report(UNFILLED, [gap.token for gap in gaps if not gap.candidates])
        self._report(TIED, [tokens[i] for i in allowed if _has_tie(ranked[i], n)])
        self._report(UNREAD, unread_marks(tokens, mask))
        return gaps

    def _report(self, problem: str, names: Sequence[str]) -> None:
        """Count the tokens or words that have a problem, and warn of the first ones."""
        n_more = max(N_NAMED - self.counts[problem], 0)
        for name in names[:n_more]:
            logging.warning("%s: %s", name, PROBLEMS[problem])
        self.counts[problem] += len(names)

    def _fill_surest_first(self, text: list[str], allowed: dict[int, np.ndarray]) -> None:
        """Replace each gap of a text by its best word: first the one whose best word is the most
        probable, then the others given this word."""
        remaining = [i for i in allowed if len(allowed[i])]
        while remaining:
            best = {i: self._ranked(text, i, allowed[i], 1)[0] for i in remaining}
            surest = max(remaining, key=lambda i: best[i].probability)
            text[surest] = best[surest].word
            remaining.remove(surest)

    def _ranked(self, text: list[str], i: int, allowed: np.ndarray, n: int) -> list[Candidate]:
        """Return the best allowed words, `n` or more, at place `i`, whose word has no effect."""
        if not len(allowed):
            return []
        compared, factors = self._compare(text, i, allowed, max(n, N_COMPARED))
        probabilities = np.exp(_normalized(factors @ self.exponents))
        order = np.argsort(-probabilities, kind="stable")
        return [Candidate(self.words[compared[k]], float(probabilities[k])) for k in order]

    def _compare(
        self, text: list[str], i: int, allowed: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the allowed candidates that are compared at place `i`, integer (n,), and the
        logarithms of their factors, float64 (n, factors)."""
        remembered: Logs = {}
        if self.memory is not None:
            remembered = self.memory.log_probabilities(text, i)
        fit = self._fit(text, i, allowed, remembered)
        compared = self._best(allowed, fit, n)

        # Factors: probabilities of the sentence with each of them, and of the memory
        sentences = ([*text[:i], self.words[k], *text[i + 1 :]] for k in compared)
        totals = np.array([list(score.total.values()) for score in self._score(sentences)])
        totals -= self._log_sharing[compared, None]  # n, directions
        by_memory = [self._logs_of(compared, logs) for logs in remembered.values()]  # n each
        return compared, np.column_stack([totals, *by_memory])

    def _fit(self, text: list[str], i: int, allowed: np.ndarray, remembered: Logs) -> np.ndarray:
        """Return the logarithm of each candidate's probability given both sides of place `i`, or
        of a value proportional to it: by the model, or by the mean of the model and the memory."""
        logs = next(self._log_probabilities(text, [i]))
        fit = self._logs_of(allowed, self._vocabulary.both_sides(logs, has_unknown=True))
        if not remembered:
            return fit
        by_memory = self._logs_of(allowed, remembered["both"])
        return np.logaddexp(_normalized(fit), _normalized(by_memory))

    def _best(self, allowed: np.ndarray, fit: np.ndarray, n: int) -> np.ndarray:
        """Return the `n` candidates that fit best, with those that fit as well as the last."""
        order = np.argsort(-fit, kind="stable")
        last = fit[order[:n]][-1]
        best = allowed[order[: np.count_nonzero(fit >= last - ROUNDING)]]
        best, others = np.split(best, [max(n, MAX_COMPARED)])
        self._report(CUT, [self.words[k] for k in others])
        return best

    def _logs_of(self, candidates: np.ndarray, logs: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of candidates; `logs` are of the vocabulary, (V,)."""
        return logs[self._ids[candidates]] - self._log_sharing[candidates]

    def fit_exponents(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return exponents fitted to words of held-out sentences, from those of this filler."""
        places = [(words, i) for words in sentences for i in range(len(words))]
        chosen = np.random.default_rng(0).permutation(len(places))[:N_FITTED].tolist()
        everything = np.arange(len(self.words))

        # Factors of the candidates relative to those of the right word, if it is one of them
        relative = []
        bar = Progress("fitting the exponents", "words", len(chosen))
        for number in bar.over(chosen):
            sentence, i = places[number]
            compared, factors = self._compare([*sentence], i, everything, N_COMPARED)
            is_right = [self.words[k] == sentence[i] for k in compared]
            if any(is_right):
                relative.append(factors - factors[is_right])
        return fit_exponents(relative, self.exponents)


def _has_tie(ranked: list[Candidate], n: int) -> bool:
    """Return whether one of the `n` first words is as probable as the next one."""
    probabilities = np.array([candidate.probability for candidate in ranked[: n + 1]])
    return bool(np.any(probabilities[1:] > (1 - ROUNDING) * probabilities[:-1]))


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
