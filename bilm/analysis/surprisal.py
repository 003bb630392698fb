"""Surprisal: the information in bits that each word of a sentence carries for a language model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bilm.data.tokenization import check_batch, checked_sentence
from bilm.scoring.memory.prediction import Memory
from bilm.scoring.scorer import Predicted, Score, Scorer, Substitute

NATS_PER_BIT = math.log(2)


class Surprisal(NamedTuple):
    """The surprisal of the words w_1 ... w_T of a sentence, -log2 p(w_i | context), in bits.

    The context of `forward` is the words to the left, w_1 ... w_i-1, and that of `backward` is the
    words to the right, w_i+1 ... w_T. Each field has T entries: the marks `<S>` and `</S>`, which
    `Score` contains, are left out. Numbers that a model does not predict are nan.

    Fields:
        word: the words.
        characters: int64: number of Unicode code points.
        known: boolean: whether the vocabulary contains the word. The surprisal of a word that it
            lacks is that of `<UNK>`, which all such words share; do not compare it with others.
        forward, backward: float64.
        forward_cumulative, backward_cumulative: float64: sum of `forward` from the first word to
            this one, and of `backward` from the last word back to this one.
        forward_entropy, backward_entropy: float64: entropy in bits of the distribution over the
            vocabulary with its marks: the expected surprisal (Levy 2008).
        forward_rank, backward_rank: float64: 1 plus the number of likelier words.
        forward_top, backward_top: the likeliest words with their surprisal: `chair:1.9 bed:2.25`.
        region: int64: number of marks before the word, see `word_surprisals`.
    """

    word: list[str]
    characters: np.ndarray
    known: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    forward_cumulative: np.ndarray
    backward_cumulative: np.ndarray
    forward_entropy: np.ndarray
    backward_entropy: np.ndarray
    forward_rank: np.ndarray
    backward_rank: np.ndarray
    forward_top: list[str]
    backward_top: list[str]
    region: np.ndarray

    @classmethod
    def of(cls, score: Score) -> Surprisal:
        """Convert log-probabilities in nats to bits."""

        def listed(likeliest: Iterable[Substitute]) -> str:
            return " ".join(f"{word}:{log / -NATS_PER_BIT:.4g}" for word, log in likeliest)

        words, n_words, predicted = score.tokens, len(score.tokens), score.predicted or {}
        right = np.full(n_words + 1, np.nan) if score.backward is None else score.backward
        logs = score.forward[:-1], right[1:]
        forward, backward = (log.astype(np.float64) / -NATS_PER_BIT for log in logs)
        nothing = [Predicted(math.nan, math.nan, [])] * (n_words + 1)
        both = predicted.get("forward", nothing)[:-1], predicted.get("backward", nothing)[1:]
        columns: list[Any] = [
            *(np.array([each.entropy for each in own]) / NATS_PER_BIT for own in both),
            *(np.array([each.rank for each in own], np.float64) for own in both),
            *([listed(each.likeliest) for each in own] for own in both),
            np.zeros(n_words, np.int64),
        ]
        return cls(
            words,
            np.array([len(word) for word in words], np.int64),
            score.is_known[:-1],
            forward,
            backward,
            np.cumsum(forward),
            np.cumsum(backward[::-1])[::-1],
            *columns,
        )


def word_surprisals(
    scorer: Scorer,
    sentences: Iterable[Sequence[str]],
    context: int = 0,
    top: int = 0,
    mark: str | None = None,
    memory: Memory | None = None,
) -> Iterator[Surprisal]:
    """Yield the surprisal of the words of each sentence, in order and in bounded memory.

    Args:
        scorer: the language model, for example `bilm.load_scorer("novels-en")`.
        sentences: lists of words, or strings, which are split at blanks.
        context: see `Scorer.score`.
        top: number of likeliest words.
        mark: word such as `|` between the regions of a sentence, which the model does not read.
        memory: mixed with the model, except in entropies, ranks and likeliest words.
    Raises: DataError if a sentence is neither a string nor a list of words.
    """
    check_batch(sentences)
    regions: deque[np.ndarray] = deque()

    def unmarked() -> Iterator[list[str]]:
        for number, sentence in enumerate(sentences):
            words = sentence.split() if isinstance(sentence, str) else sentence
            words = checked_sentence(words, f"sentence {number}")
            is_mark = np.array([word == mark for word in words], bool)
            regions.append(np.cumsum(is_mark)[~is_mark])
            yield [word for word in words if word != mark]

    for score in scorer.score(unmarked(), context, top):
        found = Surprisal.of(score.mixed(memory) if memory else score)
        yield found._replace(region=regions.popleft())


def by_region(found: Surprisal) -> dict[str, Any]:
    """Return a row for each region that contains words; `known` states whether all words are, and
    the sum of surprisal is -log2 of the probability of the region given its context."""
    counts = np.bincount(found.region)
    numbers = np.flatnonzero(counts)
    table: dict[str, Any] = {
        "region": numbers,
        "words": [" ".join(np.array(found.word)[found.region == k]) for k in numbers],
        "n_words": counts[numbers],
        "known": np.bincount(found.region, ~found.known)[numbers] == 0,
    }
    for direction in ("forward", "backward"):
        sums = np.bincount(found.region, getattr(found, direction))[numbers]
        table |= {f"{direction}_sum": sums, f"{direction}_mean": sums / counts[numbers]}
    return table


def surprisal_columns(
    scorer: Scorer, sentences: Iterable[Sequence[str]], **how: Any
) -> Iterator[dict[str, list]]:
    """Yield the columns of `bilm surprisal` for each sentence, without its place; `how` contains
    `context`, `top`, `mark` and `memory` of `word_surprisals`."""
    for found in word_surprisals(scorer, sentences, **how):
        columns: dict[str, Any] = {"position": range(len(found.word)), **found._asdict()}
        if how.get("mark") is not None:
            columns = by_region(found)
        yield {name: np.asarray(values).tolist() for name, values in columns.items()}


def surprisal_table(
    scorer: Scorer, sentences: Iterable[Sequence[str]], **how: Any
) -> dict[str, list]:
    """Return the columns of `bilm surprisal` for all sentences, see `surprisal_columns`, as in
    `pandas.DataFrame(surprisal_table(scorer, ["She rose .", "He sat ."], context=1, top=3))`."""
    table: dict[str, list] = {}
    for number, columns in enumerate(surprisal_columns(scorer, sentences, **how)):
        for name, values in {"sentence": [number] * len(columns["known"]), **columns}.items():
            table.setdefault(name, []).extend(values)
    return table
