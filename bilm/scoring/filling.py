"""Fills gaps in a text: lost words, and lost letters of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from bilm.data.tokenization import checked_sentence
from bilm.data.vocabulary import UNK
from bilm.scoring.memory import Memory
from bilm.support.progress import progress

MASK = "[MASK]"
LOST = re.compile(r"\[(\.+|-+)\]")  # a dot for each lost letter, dashes for an unknown number
N_COMPARED = 40  # candidates with which the whole sentence is scored
N_FITTED = 300  # words that the exponents are fitted to
PRIOR = 0.06  # precision of the exponents' normal prior, per fitted word
NEWTON_STEPS = 20


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


def pattern(token: str, mask: str = MASK) -> re.Pattern[str] | None:
    """Return the pattern of the words, in NFC, that a token with a gap can be; None without a gap.

    A gap is the mask, or letters in brackets: `ki[..]g` lacks two letters, and `k[---]` lacks an
    unknown number of them, at least one.
    """
    if token == mask:
        return re.compile(".+")
    kept, *rest = LOST.split(normalize("NFC", token))
    found = re.escape(kept)
    for lost, kept in zip(rest[::2], rest[1::2], strict=True):
        found += (f".{{{len(lost)}}}" if "." in lost else ".+") + re.escape(kept)
    return re.compile(found) if rest else None


class Filler:
    """Fills gaps with the words of a vocabulary and of a list.

    The candidates that fit best by both sides of a gap are compared by a product of powers: of the
    probability of the whole sentence with the candidate, in each direction of the model, and with a
    memory also of its probability in each view of the memory and of its frequency. Without one, the
    product is the geometric mean over the directions.

    Args:
        vocabulary: the words in the order of ids.
        proper: ids of the words that are candidates.
        quick: function from a sentence and a position to the log-probability of each word of the
            vocabulary given both sides, float (V,).
        totals: function from sentences to their log-probabilities by direction, float
            (n, directions).
        words: further candidates. Those outside of the vocabulary share the probability of `<UNK>`.
            Gap marks are left out.
        memory: memory of the training text; None for none.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        proper: np.ndarray,
        quick: Callable[[list[str], int], np.ndarray],
        totals: Callable[[Iterable[list[str]]], np.ndarray],
        words: Iterable[str] = (),
        memory: Memory | None = None,
    ):
        self._quick, self._totals, self._memory = quick, totals, memory
        proper = np.array([i for i in proper.tolist() if pattern(vocabulary[i]) is None], np.int64)
        known, forms = [vocabulary[i] for i in proper], {normalize("NFC", w) for w in vocabulary}
        more = sorted({w for w in words if normalize("NFC", w) not in forms and not pattern(w)})
        unknown = np.full(len(more), list(vocabulary).index(UNK))
        self.words = [*known, *more]
        self._ids = np.concatenate([proper, unknown])
        self._sharing: np.ndarray = np.repeat([0.0, np.log(len(more) + 1)], [len(known), len(more)])
        self._normal = [normalize("NFC", word) for word in self.words]

    def fill(self, tokens: Sequence[str], n: int = 10, mask: str = MASK) -> list[Gap]:
        """Return the gaps of a sentence; see `Scorer.fill`."""
        if n < 1:
            raise ValueError(f"n is {n}, expected at least 1")
        tokens = checked_sentence(tokens, "the sentence")
        gaps = {i: found for i, token in enumerate(tokens) if (found := pattern(token, mask))}
        allowed = {
            i: np.flatnonzero([w != mask and bool(each.fullmatch(w)) for w in self._normal])
            for i, each in gaps.items()
        }
        text = [UNK if i in gaps else token for i, token in enumerate(tokens)]
        remaining = [i for i in gaps if len(allowed[i])]
        while remaining and len(gaps) > 1:
            best = {i: self._candidates(text, i, allowed[i], 1)[0] for i in remaining}
            surest = max(remaining, key=lambda i: best[i].probability)
            text[surest] = best[surest].word
            remaining.remove(surest)
        return [Gap(i, tokens[i], self._candidates(text, i, allowed[i], n)) for i in gaps]

    def _candidates(self, text: list[str], i: int, allowed: np.ndarray, n: int) -> list[Candidate]:
        """Return the `n` best allowed words at place `i`, whose word in the text has no effect."""
        if not len(allowed):
            return []
        compared, logs = self._compared(text, i, allowed, max(n, N_COMPARED))
        logs = (
            logs.mean(axis=1) if self._memory is None else logs @ self._memory.fitted["exponents"]
        )
        probabilities = np.exp(logs - np.logaddexp.reduce(logs))
        order = np.argsort(-probabilities, kind="stable")[:n]
        return [Candidate(self.words[compared[k]], float(probabilities[k])) for k in order]

    def _compared(
        self, text: list[str], i: int, allowed: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the `n` allowed words that fit best by the context, integer (n,), and the
        logarithms of the factors that compare them, float64 (n, factors)."""
        quick = both = self._quick(text, i)[self._ids[allowed]] - self._sharing[allowed]
        if self._memory is not None:
            recalled = self._memory.log_probabilities(text, i)[self._ids[allowed]]
            recalled = recalled - self._sharing[allowed, None]
            both = recalled[:, 0] - np.logaddexp.reduce(recalled[:, 0])
            both = np.logaddexp(quick - np.logaddexp.reduce(quick), both)
        order = np.argsort(-both, kind="stable")[:n]
        best = allowed[order]
        totals = self._totals([*text[:i], self.words[k], *text[i + 1 :]] for k in best)
        totals = totals - self._sharing[best, None]
        return best, totals if self._memory is None else np.hstack([totals, recalled[order]])

    def fit(self, sentences: Sequence[Sequence[str]]) -> None:
        """Fit the exponents of the memory to held-out sentences: maximize the probability of words
        among their candidates, with a normal prior around the present exponents, by Newton's
        method."""
        assert self._memory is not None
        places = [(words, i) for words in sentences for i in range(len(words))]
        chosen = np.random.default_rng(0).permutation(len(places))[:N_FITTED].tolist()
        compared, everything = [], np.arange(len(self.words))
        with progress("fitting the exponents", "words", len(chosen)) as shown:
            for words, i in (places[k] for k in chosen):
                best, logs = self._compared([*words], i, everything, N_COMPARED)
                is_right = [self.words[k] == words[i] for k in best]
                compared += [logs - logs[is_right]] if any(is_right) else []
                shown.add(1)
        prior = found = self._memory.fitted["exponents"]
        precision = PRIOR * max(len(compared), 1) * np.eye(len(prior))

        def objective(exponents: np.ndarray) -> float:
            logs = [np.logaddexp.reduce(logs @ exponents) for logs in compared]
            return -sum(logs) - (exponents - prior) @ precision @ (exponents - prior) / 2

        for _ in range(NEWTON_STEPS):
            gradient, hessian = precision @ (prior - found), precision.copy()
            for logs in compared:
                share = np.exp(logs @ found - np.logaddexp.reduce(logs @ found))
                gradient -= share @ logs
                hessian += (share * logs.T) @ logs - np.outer(share @ logs, share @ logs)
            step = np.linalg.solve(hessian, gradient)
            while objective(found + step) < objective(found):
                step /= 2
            found = found + step
        self._memory.fitted["exponents"] = found
