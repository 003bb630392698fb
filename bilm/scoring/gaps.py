"""Marks of gaps in a text, and the words that a gap can be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from unicodedata import normalize

import numpy as np

from bilm.data.marks import UNK

MASK = "[MASK]"
LOST = re.compile(r"\[(\.+|-+)\]")  # a dot for each lost letter, dashes for an unknown number


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


class CandidateWords(NamedTuple):
    """C words that a gap can be filled with.

    Fields:
        words: the words, those of the vocabulary first.
        ids: int64 (C,): their ids, that of `<UNK>` for words that the vocabulary lacks.
        log_sharing: float64 (C,): logarithm of the number of words that share the probability of an
            id: words that the vocabulary lacks share that of `<UNK>` with all others.
        normalized: the words in NFC.
    """

    words: list[str]
    ids: np.ndarray
    log_sharing: np.ndarray
    normalized: list[str]

    @classmethod
    def of(
        cls, vocabulary: Sequence[str], proper: np.ndarray, more: Iterable[str] = ()
    ) -> CandidateWords:
        """Collect them. Marks of gaps are left out.

        Args:
            vocabulary: the words in the order of ids.
            proper: ids of the words that are candidates.
            more: further candidates.
        """
        ids = [i for i in proper.tolist() if pattern(vocabulary[i]) is None]

        in_vocabulary = {normalize("NFC", word) for word in vocabulary}
        others = {word for word in more if normalize("NFC", word) not in in_vocabulary}
        unknown = sorted(word for word in others if pattern(word) is None)

        words = [vocabulary[i] for i in ids] + unknown
        ids += [list(vocabulary).index(UNK)] * len(unknown)
        log_sharing: np.ndarray = np.zeros(len(words))
        log_sharing[len(words) - len(unknown) :] = np.log(len(unknown) + 1)
        normalized = [normalize("NFC", word) for word in words]
        return cls(words, np.array(ids, np.int64), log_sharing, normalized)

    def matching(self, gap: re.Pattern[str], mask: str) -> np.ndarray:
        """Return the indices of the words, except the mask, that a gap can be, integer (n,)."""
        is_match = [word != mask and bool(gap.fullmatch(word)) for word in self.normalized]
        return np.flatnonzero(is_match)
