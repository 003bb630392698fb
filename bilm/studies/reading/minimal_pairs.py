"""Minimal pairs: how often a language model prefers the acceptable one of two sentences.

The method and the names of the columns are those of BLiMP (Warstadt et al. 2020, "BLiMP: The
Benchmark of Linguistic Minimal Pairs for English", TACL 8, arXiv:1912.00582).
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, tee
from typing import Any, NamedTuple

from bilm.data import TABLES, InputFile, Reading, form_of, table_rows, text_of, words_of
from bilm.errors import DataError
from bilm.scoring import Scorer
from bilm.studies.reading.surprisal import NATS_PER_BIT

TIE = 1e-4  # bits, more than what log-probabilities change by in another batch
GOOD, BAD, PHENOMENON, UID = "sentence_good", "sentence_bad", "linguistics_term", "UID"  # columns


class MinimalPair(NamedTuple):
    """Two sentences that differ minimally, as words."""

    good: list[str]  # acceptable
    bad: list[str]  # unacceptable
    phenomenon: str  # such as "island_effects"
    uid: str  # kind of pair within the phenomenon, such as "wh_island"


class PairScore(NamedTuple):
    """How strongly a language model prefers the acceptable sentence of a pair: log2 p(good) -
    log2 p(bad) in bits, by direction: "forward", and if the model has them "backward" and "both",
    their sum. The probability of a sentence includes its end, `</S>` or `<S>`."""

    pair: MinimalPair
    preference: dict[str, float]
    unknown: list[str]  # distinct words that the vocabulary lacks; they are scored as `<UNK>`


@dataclass
class Accuracy:
    """Numbers of pairs in a group. Ties, which differ by at most `TIE` bits, are not correct."""

    n_pairs: int = 0
    n_unknown: int = 0  # with a word outside the vocabulary
    n_correct: Counter[str] = field(default_factory=Counter)  # by direction
    n_ties: Counter[str] = field(default_factory=Counter)  # by direction

    def add(self, score: PairScore) -> None:
        """Count a pair."""
        self.n_pairs += 1
        self.n_unknown += bool(score.unknown)
        for direction, bits in score.preference.items():
            self.n_correct[direction] += bits > TIE
            self.n_ties[direction] += abs(bits) <= TIE

    @property
    def percent(self) -> dict[str, float]:
        """The share of correct pairs in percent, by direction."""
        return {name: 100 * n / self.n_pairs for name, n in self.n_correct.items()}


class PairResults(NamedTuple):
    """Accuracy of a language model on all pairs and on groups of them."""

    overall: Accuracy
    known: Accuracy  # pairs without unknown words
    phenomena: dict[str, Accuracy]
    uids: dict[tuple[str, str], Accuracy]  # by phenomenon and UID

    @classmethod
    def of(cls, scores: Iterable[PairScore]) -> PairResults:
        """Count the pairs."""
        results = cls(Accuracy(), Accuracy(), defaultdict(Accuracy), defaultdict(Accuracy))
        for score in scores:
            results.overall.add(score)
            if not score.unknown:
                results.known.add(score)
            results.phenomena[score.pair.phenomenon].add(score)
            results.uids[score.pair.phenomenon, score.pair.uid].add(score)
        return results


def read_pairs(path: str | os.PathLike, **how: Any) -> Iterator[MinimalPair]:
    """Yield the minimal pairs of a table, JSON Lines, CSV, TSV or Parquet, with the columns `GOOD`,
    `BAD`, `PHENOMENON` and `UID`; others are ignored. `how`: `tokenize`, `on_bad_utf8` and
    `quoting` of `bilm.data.Reading`. Raises: DataError, which names the file and the line or row;
    BilmError if a package is missing."""
    if form_of(path) is not TABLES:
        raise DataError(
            f"{path}: expected a table of minimal pairs, whose name ends with one of "
            f"{', '.join(TABLES.endings)}"
        )
    reading = Reading(**how)
    source = InputFile(os.fspath(path), reading)
    for where, row in table_rows(source, [GOOD, BAD, PHENOMENON, UID]):
        sentences = {}
        for name in (GOOD, BAD):
            (words,) = words_of(row, name, reading.split, where)
            if not words:
                raise DataError(f"{where}: {name} contains no words")
            sentences[name] = words
        phenomenon, uid = text_of(row, PHENOMENON, where), text_of(row, UID, where)
        yield MinimalPair(sentences[GOOD], sentences[BAD], phenomenon, uid)


def score_pairs(scorer: Scorer, pairs: Iterable[MinimalPair]) -> Iterator[PairScore]:
    """Yield the preference of a language model for each pair, in order and in bounded memory. The
    language model is, for example, `bilm.load_scorer("novels-en")`."""
    to_score, to_yield = tee(pairs)
    scores = scorer.score(chain.from_iterable((pair.good, pair.bad) for pair in to_score))
    for pair in to_yield:
        good, bad = next(scores), next(scores)
        preference = {}
        for direction, nats in good.total.items():
            preference[direction] = (nats - bad.total[direction]) / NATS_PER_BIT
        if "backward" in preference:
            preference["both"] = preference["forward"] + preference["backward"]
        unknown = dict.fromkeys([*good.unknown, *bad.unknown])
        yield PairScore(pair, preference, list(unknown))
