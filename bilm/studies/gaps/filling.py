"""Fills gaps in a text: lost words, and lost letters of words."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from absl import logging

from bilm.data import UNK, checked_sentence
from bilm.scoring import Logs, Scorer
from bilm.studies.gaps.fitting import fit_exponents
from bilm.studies.gaps.gap_marks import MASK, pattern, unread_marks
from bilm.studies.gaps.memory import Memory
from bilm.support import Progress

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
# By the names of the factors in `Memory.log_probabilities`
MEMORY_EXPONENTS = {"both": 0.2, "forward": 0.5, "backward": 0.5, "frequency": -0.9}


class Candidate(NamedTuple):
    """A word and its probability among the candidates with which the sentence was scored."""

    word: str
    probability: float


class Gap(NamedTuple):
    """A gap of a sentence."""

    position: int  # index of the token, from 0
    token: str  # with its mark
    candidates: list[Candidate]  # the most probable first; empty if no word matches the token


class Filler:
    """Fills gaps with words. The candidates that fit best by both sides of a gap are compared::

        P(candidate) is proportional to the product of factor ** exponent

    The factors are the probability of the whole sentence with the candidate in each direction of
    the model, and with a memory also those of `MEMORY_EXPONENTS`. Without a memory, the product is
    the geometric mean over the directions.

    Args:
        others: candidates besides the vocabulary.
    Attributes: `counts`, of gaps and of each of `PROBLEMS`; the first `N_NAMED` are also logged.
    Raises: DataError if the memory was fitted to a model with other directions.

    Example:
        filler = Filler(bilm.load_scorer("run"))
        filler.fill(["The", "[MASK]", "clo[..]d", "."], n=3)
    """

    def __init__(
        self,
        model: Scorer,
        others: Iterable[str] = (),
        memory: Memory | None = None,
    ):
        n_directions = len(model.directions)
        exponents = np.full(n_directions, 1 / n_directions)
        if memory is not None:
            memory.check_directions(n_directions)
            of_model = [MODEL_EXPONENT / n_directions] * n_directions
            first = np.array([*of_model, *MEMORY_EXPONENTS.values()])
            exponents = first if memory.exponents is None else memory.exponents
        self.counts: Counter[str] = Counter(gaps=0)
        self._model = model
        self._memory = memory
        self._exponents = exponents

        # The C words that can be candidates, of the vocabulary and others; no marks of gaps
        vocabulary = model.vocabulary
        proper = [vocabulary.words[i] for i in vocabulary.proper.tolist()]
        in_vocabulary = {normalize("NFC", word) for word in vocabulary.words}
        others = checked_sentence([*others] if isinstance(others, Set) else others, "words")
        new = {word for word in others if normalize("NFC", word) not in in_vocabulary}
        self.words = [word for word in (*proper, *sorted(new)) if pattern(word) is None]
        self._normalized = [normalize("NFC", word) for word in self.words]

        # The others share the probability of `<UNK>` with all missing words.
        self._ids = vocabulary.known_ids(self.words)  # C
        is_unknown = self._ids == vocabulary.unk
        self._log_sharing = np.where(is_unknown, np.log(is_unknown.sum() + 1), 0)  # C

    def fill(self, tokens: Sequence[str], n: int = 10, mask: str = MASK) -> list[Gap]:
        """Fill the gaps of a sentence, in its order: lost words, and lost letters of words.

        Several gaps are filled jointly: first the one whose best word is the most probable, then
        the others given this word, and finally each given the best words of all others.

        Args:
            tokens: a sentence. `mask` is a lost word; for other gaps, see `pattern`. A warning
                names tokens that only look like gaps, and gaps that no word matches.
            n: maximum number of words for each gap.
        """
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
        self._report(UNREAD, unread_marks(tokens, mask, self._model.vocabulary))
        return gaps

    def _report(self, problem: str, names: Sequence[str]) -> None:
        """Count the tokens or words that have a problem, and warn of the first ones."""
        n_more = max(N_NAMED - self.counts[problem], 0)
        for name in names[:n_more]:
            logging.warning("%s: %s", name, PROBLEMS[problem])
        self.counts[problem] += len(names)

    def _fill_surest_first(self, text: list[str], allowed: dict[int, np.ndarray]) -> None:
        """Replace each gap of a text by its best word, as `fill` explains."""
        remaining = [i for i in allowed if len(allowed[i])]
        while remaining:
            best = {i: self._ranked(text, i, allowed[i], 1)[0] for i in remaining}
            surest = max(remaining, key=lambda i: best[i].probability)
            text[surest] = best[surest].word
            remaining.remove(surest)

    def _ranked(self, text: list[str], i: int, allowed: np.ndarray, n: int) -> list[Candidate]:
        """Return the best allowed words, `n` or more, at place `i`."""
        if not len(allowed):
            return []
        compared, factors = self._compare(text, i, allowed, max(n, N_COMPARED))
        probabilities = np.exp(_normalized(factors @ self._exponents))
        order = np.argsort(-probabilities, kind="stable")
        return [Candidate(self.words[compared[k]], float(probabilities[k])) for k in order]

    def _compare(
        self, text: list[str], i: int, allowed: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the allowed candidates that are compared at place `i`, integer (n,), and the
        logarithms of their factors, float64 (n, factors)."""
        # How well each candidate fits both sides: by the model, or by the mean of model and memory
        logs = next(self._model.log_probabilities(text, [i]))
        by_model = self._model.vocabulary.both_sides(logs, has_unknown=True)
        fit = self._logs_of(allowed, by_model)
        remembered: Logs = {}
        if self._memory is not None:
            remembered = self._memory.log_probabilities(text, i)
            by_memory = self._logs_of(allowed, remembered["both"])
            fit = np.logaddexp(_normalized(fit), _normalized(by_memory))
        compared = self._best(allowed, fit, n)

        # Factors: probabilities of the sentence with each of the best, and of the memory
        sentences = ([*text[:i], self.words[k], *text[i + 1 :]] for k in compared)
        totals = np.array([list(score.total.values()) for score in self._model.score(sentences)])
        totals -= self._log_sharing[compared, None]  # n, directions
        names = MEMORY_EXPONENTS if remembered else ()
        factors = [self._logs_of(compared, remembered[name]) for name in names]  # n each
        return compared, np.column_stack([totals, *factors])

    def _best(self, allowed: np.ndarray, fit: np.ndarray, n: int) -> np.ndarray:
        """Return the `n` allowed candidates that fit best, by logarithms of probabilities or of
        values proportional to them, with those that fit as well as the last."""
        order = np.argsort(-fit, kind="stable")
        last = fit[order[:n]][-1]
        best = allowed[order[: np.count_nonzero(fit >= last - ROUNDING)]]
        best, others = np.split(best, [max(n, MAX_COMPARED)])
        self._report(CUT, [self.words[k] for k in others])
        return best

    def _logs_of(self, candidates: np.ndarray, logs: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of candidates; `logs` are of the vocabulary, (V,)."""
        return logs[self._ids[candidates]] - self._log_sharing[candidates]

    def fit_exponents(self, sentences: Sequence[list[str]]) -> np.ndarray:
        """Return exponents fitted to words of held-out sentences, from those of this filler."""
        places = [(words, i) for words in sentences for i in range(len(words))]
        chosen = np.random.default_rng(0).permutation(len(places))[:N_FITTED].tolist()
        everything = np.arange(len(self.words))

        # Factors of the candidates relative to those of the right word, if it is one of them
        relative = []
        bar = Progress("fitting the exponents", "words", len(chosen))
        for number in bar.over(chosen):
            sentence, i = places[number]
            compared, factors = self._compare(sentence, i, everything, N_COMPARED)
            is_right = [self.words[k] == sentence[i] for k in compared]
            if any(is_right):
                relative.append(factors - factors[is_right])
        return fit_exponents(relative, self._exponents)


def _has_tie(ranked: list[Candidate], n: int) -> bool:
    """Return whether one of the `n` first words is as probable as the next one."""
    return any(
        later.probability > (1 - ROUNDING) * earlier.probability
        for earlier, later in pairwise(ranked[: n + 1])
    )


def _normalized(logs: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities that are proportional to exp(logs), (n,)."""
    return logs - np.logaddexp.reduce(logs)


def n_predictions(n_words: int, n_gaps: int = 1) -> int:
    """Return about how many predictions fill the gaps of a sentence, in a direction."""
    n_comparisons = n_gaps
    if n_gaps > 1:
        n_comparisons += n_gaps * (n_gaps + 1) // 2  # to find the surest ones
    return (n_words + 1) * (1 + n_comparisons * (N_COMPARED + 1))
