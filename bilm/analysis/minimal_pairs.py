"""Minimal pairs: how often a language model prefers the acceptable one of two sentences.

The method and the names of the columns are those of BLiMP (Warstadt et al. 2020, "BLiMP: The
Benchmark of Linguistic Minimal Pairs for English", TACL 8, arXiv:1912.00582).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import tee
from typing import NamedTuple

from bilm.analysis.surprisal import NATS_PER_BIT
from bilm.data.readers import form_of
from bilm.data.readers.tables import FORM as TABLES
from bilm.data.readers.tables import table_rows, text_of, words_of
from bilm.data.text import ON_BAD_UTF8
from bilm.data.tokenization import tokenizer
from bilm.errors import DataError
from bilm.scoring.scorer import Score, Scorer

TIE = 1e-4  # bits, more than what log-probabilities change by in another batch
SENTENCES = ("sentence_good", "sentence_bad")  # columns


class MinimalPair(NamedTuple):
    """Two sentences that differ minimally.

    Fields:
        good: words of the acceptable sentence (`sentence_good`).
        bad: words of the unacceptable sentence (`sentence_bad`).
        phenomenon: the linguistic phenomenon (`linguistics_term`), such as "island_effects".
        uid: the kind of pair within the phenomenon (`UID`), such as "wh_island".
    """

    good: list[str]
    bad: list[str]
    phenomenon: str
    uid: str


class PairScore(NamedTuple):
    """How strongly a language model prefers the acceptable sentence of a pair.

    Fields:
        pair: the pair.
        preference: log2 p(good) - log2 p(bad) in bits, by direction: "forward", "backward" and
            "both", their sum. A forward-only model has "forward" only. The probability of a
            sentence includes its end: `</S>`, or `<S>` for the backward direction.
        unknown: words of both sentences that the vocabulary lacks, without duplicates. They are
            scored as `<UNK>`.
    """

    pair: MinimalPair
    preference: dict[str, float]
    unknown: list[str]


@dataclass
class Accuracy:
    """Counts of a group of pairs.

    Attributes:
        n_pairs: number of pairs.
        n_unknown: number of pairs that contain a word outside the vocabulary.
        n_correct: number of pairs whose acceptable sentence is more probable, by direction.
        n_ties: number of pairs whose sentences differ by at most `TIE` bits, by direction. They are
            not correct.
    """

    n_pairs: int = 0
    n_unknown: int = 0
    n_correct: Counter[str] = field(default_factory=Counter)
    n_ties: Counter[str] = field(default_factory=Counter)

    def add(self, score: PairScore) -> None:
        """Count a pair."""
        self.n_pairs += 1
        self.n_unknown += bool(score.unknown)
        self.n_correct.update({d: bits > TIE for d, bits in score.preference.items()})
        self.n_ties.update({d: abs(bits) <= TIE for d, bits in score.preference.items()})

    @property
    def percent(self) -> dict[str, float]:
        """The share of correct pairs in percent, by direction."""
        return {name: 100 * n / self.n_pairs for name, n in self.n_correct.items()}


@dataclass
class PairResults:
    """Accuracy of a language model on all pairs and on groups of them.

    Attributes:
        overall: all pairs.
        known: the pairs without unknown words.
        phenomena: by phenomenon.
        uids: by phenomenon and UID.
    """

    overall: Accuracy = field(default_factory=Accuracy)
    known: Accuracy = field(default_factory=Accuracy)
    phenomena: dict[str, Accuracy] = field(default_factory=dict)
    uids: dict[tuple[str, str], Accuracy] = field(default_factory=dict)

    @classmethod
    def of(cls, scores: Iterable[PairScore]) -> PairResults:
        """Count the pairs."""
        results = cls()
        for score in scores:
            phenomenon, uid = score.pair.phenomenon, score.pair.uid
            results.overall.add(score)
            if not score.unknown:
                results.known.add(score)
            results.phenomena.setdefault(phenomenon, Accuracy()).add(score)
            results.uids.setdefault((phenomenon, uid), Accuracy()).add(score)
        return results


def read_pairs(
    path: str | os.PathLike, tokenize: str | None = None, on_bad_utf8: str = "error"
) -> Iterator[MinimalPair]:
    """Yield the minimal pairs of a table.

    Args:
        path: JSON Lines, CSV, TSV or Parquet with the columns `sentence_good`, `sentence_bad`,
            `linguistics_term` and `UID`; other columns are ignored.
        tokenize: language whose spaCy rules split sentences into words; None splits at whitespace.
        on_bad_utf8: "error", or "replace" to decode invalid UTF-8 as U+FFFD.
    Raises: DataError, naming the file and the line, row or pair; BilmError if a package is missing.
    """
    if form_of(path) is not TABLES:
        raise DataError(
            f"{path}: expected a table of minimal pairs, whose name ends with one of "
            f"{', '.join(TABLES.endings)}"
        )
    split = partial(map, tokenizer(tokenize))
    columns = [*SENTENCES, "linguistics_term", "UID"]
    for where, row in table_rows(os.fspath(path), columns, ON_BAD_UTF8[on_bad_utf8]):
        ((good,), (bad,)) = (words_of(row, name, split, where) for name in SENTENCES)
        if not good or not bad:
            raise DataError(f"{where}: {SENTENCES[bool(good)]} contains no words")
        yield MinimalPair(good, bad, *(text_of(row, name, where) for name in columns[2:]))


def score_pairs(scorer: Scorer, pairs: Iterable[MinimalPair]) -> Iterator[PairScore]:
    """Yield the preference of a language model for each pair, in order and in bounded memory.

    Args:
        scorer: the language model, for example `bilm.load_scorer("novels-en")`.
        pairs: see `read_pairs`.
    """
    pairs, waiting = tee(pairs)
    scores = scorer.score(sentence for pair in pairs for sentence in (pair.good, pair.bad))
    for good, bad in zip(scores, scores, strict=True):  # the iterator yields both of each pair
        yield _compare(next(waiting), good, bad)


def _compare(pair: MinimalPair, good: Score, bad: Score) -> PairScore:
    others = bad.total
    preference = {d: (value - others[d]) / NATS_PER_BIT for d, value in good.total.items()}
    if "backward" in preference:
        preference["both"] = preference["forward"] + preference["backward"]
    both = (zip(score.tokens, score.is_known, strict=False) for score in (good, bad))
    unknown = dict.fromkeys(word for words in both for word, known in words if not known)
    return PairScore(pair, preference, list(unknown))
