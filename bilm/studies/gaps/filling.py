"""Fills gaps in a text: lost words, and lost letters of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
from absl import logging

from bilm.data import UNK, checked_sentence
from bilm.scoring import Scorer
from bilm.studies.gaps.gap_marks import MASK, has_punctuation, pattern, pieces, unread_marks
from bilm.studies.gaps.letters import Letters
from bilm.studies.gaps.memory import Memory
from bilm.support import Progress

N_COMPARED = 40  # candidates with which the whole sentence is scored
MAX_COMPARED = 1000  # if more of them fit as well as the last; the most that --n requests
ROUNDING = 1e-6  # difference between equal logarithms, or between equal probabilities in relation
N_NAMED = 3  # warnings of a problem
UNREAD, UNFILLED = "tokens that look like gaps, but are not", "gaps without a candidate"
TIED, CUT = "gaps with equally probable words", "words left out of comparisons"
PROBLEMS = {
    UNREAD: "not read as a gap. A gap is one token: [MASK] or the value of --mask (argument mask), "
    "ki[..]g with a dot for each lost letter, or k[---]",
    UNFILLED: "no word of the vocabulary or of --words (argument words) matches",
    TIED: "some of the best words are equally probable, so their order has no meaning. If the "
    "model reads whole words, all words that its vocabulary lacks are equal",
    CUT: f"not compared, although as likely by both sides of a gap as the last of the "
    f"{MAX_COMPARED:,} words that are compared; reduce --words (argument words)",
}
N_FITTED = 300  # words that exponents and doubt are fitted to
DOUBT = (0.0, 1.0)  # intercept and slope before they are fitted
PRIOR = 0.06  # precision of the normal prior of an exponent, per fitted word
DOUBT_PRIOR = 0.001  # of intercept and slope of the doubt
NEWTON_STEPS = 20
MAX_LOST = 3  # letters of a word that is damaged to fit them


class Candidate(NamedTuple):
    """A word and its probability."""

    word: str
    probability: float


class Gap(NamedTuple):
    """A gap of a sentence."""

    position: int  # index of the token, from 0
    token: str  # with its mark
    candidates: list[Candidate]  # the most probable first; empty if no word matches the token
    none: float  # probability of any other word than the ones that were compared


class _Blank(NamedTuple):
    """What a token with a gap can be."""

    allowed: np.ndarray  # candidates, integer (n,)
    log_missing: float  # log P(an unknown word matches the token, and is no candidate)


class Filler:
    """Fills gaps with words. The candidates that fit best by both sides of a gap are compared::

        P(candidate) is proportional to the product of factor ** exponent

    The factors are the probability of the whole sentence with the candidate in each direction of
    the model, and with a memory also those of `Memory.log_probabilities`. Without a memory, the
    product is the geometric mean over the directions. The compared candidates share the probability
    1 - none::

        none = sigmoid(intercept + slope * log(P(other words that match the token) / P(compared)))

    by both sides of the gap. The other words are the rest of the vocabulary, and unknown words,
    with the probability of `<UNK>` times that of their letters: see `Letters`.

    Args:
        others: candidates besides the vocabulary.
    Attributes: `counts`, of gaps and of each of `PROBLEMS`; the first `N_NAMED` are also logged.
    Raises: DataError if the memory was fitted to a model with other directions.
    """

    def __init__(self, model: Scorer, others: Iterable[str] = (), memory: Memory | None = None):
        n_directions = len(model.directions)
        self.counts: Counter[str] = Counter(gaps=0)
        self._model = model
        self._memory = memory
        self._exponents = np.full(n_directions, 1 / n_directions)
        self._doubt = np.array(DOUBT)
        if memory is not None:
            memory.check_directions(n_directions)
            self._exponents, self._doubt = memory.exponents, memory.doubt

        # The C words that can be candidates, of the vocabulary and others; no marks of gaps
        vocabulary = model.vocabulary
        proper = [vocabulary.words[i] for i in vocabulary.proper.tolist()]
        in_vocabulary = {normalize("NFC", word) for word in vocabulary.words}
        others = checked_sentence([*others] if isinstance(others, Set) else others, "words")
        new = {word for word in others if normalize("NFC", word) not in in_vocabulary}
        self.words = [word for word in (*proper, *sorted(new)) if pattern(word) is None]
        self._normalized = [normalize("NFC", word) for word in self.words]

        # The others share the probability of `<UNK>`, the last id, with all missing words.
        ids = vocabulary.known_ids(self.words)
        is_unknown = ids == vocabulary.unk
        self._log_missing = -np.log(is_unknown.sum() + 1)  # P(no candidate | unknown word)
        sharing = np.where(is_unknown, -self._log_missing, 0)
        self._log_sharing: np.ndarray = np.append(sharing, 0)  # C + 1
        self._ids: np.ndarray = np.append(ids, vocabulary.unk)  # C + 1
        self._letters = Letters(self.words)

    def fill(self, tokens: Sequence[str], n: int = 10, mask: str = MASK) -> list[Gap]:
        """Fill the gaps of a sentence, in its order. Several gaps are filled jointly: first the one
        whose best word is the most probable, then the others given this word, and finally each
        given the best words of all others.

        Args:
            tokens: a sentence. `mask` is a lost word; for other gaps, see `pattern`. A warning
                names tokens that only look like gaps, and gaps that no word matches.
            n: maximum number of words for each gap, up to `MAX_COMPARED`.
        """
        if not 1 <= n <= MAX_COMPARED:
            raise ValueError(f"n is {n}, expected 1 to {MAX_COMPARED}")
        tokens = checked_sentence(tokens, "the sentence")

        text = list(tokens)
        blanks = {}
        for i, token in enumerate(tokens):
            blank = self._blank(token, mask)
            if blank is not None:
                blanks[i] = blank
                text[i] = UNK
        if len(blanks) > 1:
            self._fill_surest_first(text, blanks)

        # The best words of each gap, given the best words of all others
        gaps = []
        for i, blank in blanks.items():
            words, none = self._ranked(text, i, blank, n)
            gaps.append(Gap(i, tokens[i], words[:n], none))
            if not words:
                self._report(UNFILLED, [tokens[i]])
            if _has_tie(words, n):
                self._report(TIED, [tokens[i]])
        self._report(UNREAD, unread_marks(tokens, mask, self._model.vocabulary))
        self.counts["gaps"] += len(gaps)
        return gaps

    def _report(self, problem: str, names: Sequence[str]) -> None:
        """Count the tokens or words that have a problem, and warn of the first ones."""
        n_more = max(N_NAMED - self.counts[problem], 0)
        for name in names[:n_more]:
            is_attached = problem in (UNREAD, UNFILLED) and has_punctuation(name)
            advice = "; separate punctuation with a blank" if is_attached else ""
            logging.warning("%s: %s%s", name, PROBLEMS[problem], advice)
        self.counts[problem] += len(names)

    def _blank(self, token: str, mask: str = MASK) -> _Blank | None:
        """Return what a token with a gap can be; None without a gap."""
        gap = pattern(token, mask)
        if gap is None:
            return None
        is_match = [word != mask and bool(gap.fullmatch(word)) for word in self._normalized]
        log_match = self._letters.log_match(pieces(token, mask))
        return _Blank(np.flatnonzero(is_match), self._log_missing + log_match)

    def _fill_surest_first(self, text: list[str], blanks: dict[int, _Blank]) -> None:
        """Replace each gap of a text by its best word, as `fill` explains."""
        remaining = [i for i, blank in blanks.items() if len(blank.allowed)]
        while remaining:
            best = {i: self._ranked(text, i, blanks[i], 1)[0][0] for i in remaining}
            surest = max(remaining, key=lambda i: best[i].probability)
            text[surest] = best[surest].word
            remaining.remove(surest)

    def _ranked(
        self, text: list[str], i: int, blank: _Blank, n: int
    ) -> tuple[list[Candidate], float]:
        """Return the best words, `n` or more, at place `i`, and the probability of none of them."""
        if not len(blank.allowed):
            return [], 1.0
        both, remembered = self._sides(text, i)
        compared = self._best(blank.allowed, both, max(n, N_COMPARED))
        log_odds = self._doubt @ [1, self._odds(both, blank, compared)]
        log_compared = -np.logaddexp(log_odds, 0)
        logs = self._factors(text, i, compared, remembered) @ self._exponents
        logs += log_compared - np.logaddexp.reduce(logs)
        order = np.argsort(-logs, kind="stable")
        words = [self.words[k] for k in compared[order]]
        probabilities = np.exp(logs[order]).tolist()
        return list(map(Candidate, words, probabilities)), float(np.exp(log_odds + log_compared))

    def _sides(self, text: list[str], i: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the log-probabilities of the candidates and of `<UNK>` by both sides of place `i`,
        float64 (C + 1,), the mean of model and memory, and those of the memory. The word at the
        place has no effect."""
        logs = next(self._model.log_probabilities(text, [i]))
        both = self._model.vocabulary.both_sides(logs, has_unknown=True)
        remembered = {} if self._memory is None else self._memory.log_probabilities(text, i)
        if remembered:
            both = np.logaddexp(both, remembered["both"]) - np.log(2)
        of_memory = [logs[self._ids] - self._log_sharing for logs in remembered.values()]
        return both[self._ids] - self._log_sharing, of_memory

    def _odds(self, both: np.ndarray, blank: _Blank, compared: np.ndarray) -> float:
        """Return the logarithm of P(other words) / P(compared words)."""
        others = both[np.setdiff1d(blank.allowed, compared)]
        unknown = both[-1] + blank.log_missing
        of_others = np.logaddexp.reduce(np.append(others, unknown))
        return float(of_others - np.logaddexp.reduce(both[compared]))

    def _factors(
        self, text: list[str], i: int, compared: np.ndarray, remembered: list[np.ndarray]
    ) -> np.ndarray:
        """Return the logarithms of the factors of candidates at place `i`: of the sentence with
        each of them, and of the memory, float64 (n, factors)."""
        sentences = ([*text[:i], self.words[k], *text[i + 1 :]] for k in compared)
        scores = self._model.score_rows(sentences, len(compared))  # no warning that they are alike
        totals = np.array([list(score.total.values()) for score in scores])
        totals -= self._log_sharing[compared, None]  # n, directions
        factors = [logs[compared] for logs in remembered]  # n each
        return np.column_stack([totals, *factors])

    def _best(self, allowed: np.ndarray, both: np.ndarray, n: int) -> np.ndarray:
        """Return the `n` allowed candidates that fit best, and those that fit like the last."""
        fit = both[allowed]
        order = np.argsort(-fit, kind="stable")
        last = fit[order[:n]][-1]
        best = allowed[order[: np.count_nonzero(fit >= last - ROUNDING)]]
        best, others = np.split(best, [MAX_COMPARED])
        self._report(CUT, [self.words[k] for k in others])
        return best

    def fit(
        self, sentences: Sequence[list[str]], n_words: int, bar: Progress, cost: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the exponents, and intercept and slope of the doubt, fitted to words of held-out
        sentences, from those of this filler. Each word counts as `cost` units of the bar."""
        places = [(words, i) for words in sentences for i in range(len(words))]
        rng = np.random.default_rng(0)
        everything = _Blank(np.arange(len(self.words)), self._log_missing)
        relative = []  # factors of the candidates minus those of the right word, if it is compared
        doubts = []  # the same of `compared` and `none`
        for number in rng.permutation(len(places))[:n_words].tolist():
            sentence, i = places[number]
            both, remembered = self._sides(sentence, i)
            for blank in (everything, self._blank(_damaged(sentence[i], rng))):
                if blank is None or not len(blank.allowed):
                    continue
                compared = self._best(blank.allowed, both, N_COMPARED)
                is_right = np.array([self.words[k] == sentence[i] for k in compared])
                doubt = np.array([[0, 0], [1, self._odds(both, blank, compared)]])
                doubts.append(doubt if is_right.any() else -doubt)
                if blank is everything and is_right.any():
                    factors = self._factors(sentence, i, compared, remembered)
                    relative.append(factors - factors[is_right])
            bar.add(cost)
        exponents = fit_exponents(relative, self._exponents)
        return exponents, fit_exponents(doubts, self._doubt, DOUBT_PRIOR)


def _damaged(word: str, rng: np.random.Generator) -> str:
    """Return a word that lacks 1 to `MAX_LOST` letters, with its mark."""
    n_lost = int(rng.integers(1, MAX_LOST + 1))
    start = int(rng.integers(max(len(word) - n_lost, 0) + 1))
    return f"{word[:start]}[{'.' * n_lost}]{word[start + n_lost :]}"


def _has_tie(ranked: list[Candidate], n: int) -> bool:
    """Return whether one of the `n` first words is as probable as the next one."""
    probabilities = np.array([word.probability for word in ranked[: n + 1]])
    return bool(np.any(probabilities[1:] > (1 - ROUNDING) * probabilities[:-1]))


def n_predictions(n_words: int, n_gaps: int = 1) -> int:
    """Return about how many predictions fill the gaps of a sentence, in a direction."""
    n_comparisons = n_gaps
    if n_gaps > 1:
        n_comparisons += n_gaps * (n_gaps + 1) // 2  # to find the surest ones
    return (n_words + 1) * (1 + n_comparisons * (N_COMPARED + 1))


def fit_exponents(
    words: Sequence[np.ndarray], first: np.ndarray, prior: float = PRIOR
) -> np.ndarray:
    """Return the exponents that maximize the probability of words among their candidates, with a
    normal prior around the first ones, float64 (factors,), by Newton's method. `words`: the
    logarithms of the factors of each word's candidates, minus the word's own, float64 (candidates,
    factors). `prior`: precision per word."""
    precision = prior * max(len(words), 1) * np.eye(len(first))

    def log_posterior(exponents: np.ndarray) -> float:
        losses = [np.logaddexp.reduce(logs @ exponents) for logs in words]
        distance = exponents - first
        return -sum(losses) - distance @ precision @ distance / 2

    exponents = first
    for _ in range(NEWTON_STEPS):
        # Gradient, and the Hessian with the opposite sign, of the prior
        gradient = precision @ (first - exponents)
        curvature = precision.copy()

        # and of each word: minus the mean and plus the covariance of its candidates' factors
        for logs in words:
            product = logs @ exponents
            share = np.exp(product - np.logaddexp.reduce(product))
            mean = share @ logs
            gradient -= mean
            curvature += (share * logs.T) @ logs - np.outer(mean, mean)

        step = np.linalg.solve(curvature, gradient)
        while log_posterior(exponents + step) < log_posterior(exponents):
            step /= 2
        exponents = exponents + step
    return exponents
