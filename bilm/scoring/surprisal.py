"""Surprisal: the information in bits that each word of a sentence carries for a language model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bilm.scoring.adaptation import Adaptation
from bilm.scoring.scorer import Score, Scorer

NATS_PER_BIT = math.log(2)


class Surprisal(NamedTuple):
    """The surprisal of the words w_1 ... w_T of a sentence, -log2 p(w_i | context), in bits.

    The context of `forward` is the words to the left, w_1 ... w_i-1, and that of `backward` is the
    words to the right, w_i+1 ... w_T. The sentence starts from zero state. Each field has T
    entries, so `pandas.DataFrame(surprisal._asdict())` has a row for each word. The marks `<S>` and
    `</S>`, which `Score` contains, are left out.

    Fields:
        word: the words.
        characters: int64 (T,): number of characters (Unicode code points) of each word.
        known: boolean (T,): whether the vocabulary contains the word. The surprisal of a word that
            it lacks is that of `<UNK>`, which all such words share; do not compare it with the
            surprisal of a known word.
        forward: float64 (T,).
        backward: float64 (T,); nan for a forward-only model.
        forward_cumulative: float64 (T,): sum of `forward` from the first word to this one, which is
            -log2 p(w_1 ... w_i).
        backward_cumulative: float64 (T,): sum of `backward` from the last word back to this one,
            which is -log2 p(w_i ... w_T); nan for a forward-only model.
    References: Hale 2001, "A Probabilistic Earley Parser as a Psycholinguistic Model"; Levy 2008,
        "Expectation-based syntactic comprehension".
    """

    word: list[str]
    characters: np.ndarray
    known: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    forward_cumulative: np.ndarray
    backward_cumulative: np.ndarray

    @classmethod
    def of(cls, score: Score) -> Surprisal:
        """Convert log-probabilities in nats to bits."""
        words = score.tokens
        forward = score.forward[:-1].astype(np.float64) / -NATS_PER_BIT
        if score.backward is None:
            backward = np.full(len(words), np.nan)
        else:
            backward = score.backward[1:].astype(np.float64) / -NATS_PER_BIT
        return cls(
            words,
            np.array([len(word) for word in words], np.int64),
            score.is_known[:-1],
            forward,
            backward,
            np.cumsum(forward),
            np.cumsum(backward[::-1])[::-1],
        )


def word_surprisals(
    scorer: Scorer, sentences: Iterable[Sequence[str]], adaptation: Adaptation | None = None
) -> Iterator[Surprisal]:
    """Yield the surprisal of the words of each sentence, in order and in bounded memory.

    Args:
        scorer: the language model, for example `bilm.load_scorer("novels-en")`.
        sentences: lists of words.
        adaptation: how the model adapts to the sentences, see `Scorer.score`.
    Raises: DataError if a sentence is not a list of words.
    """
    return map(Surprisal.of, scorer.score(sentences, adaptation))
