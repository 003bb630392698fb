"""Surprisal: the information in bits that each word of a sentence carries for a language model
(Hale 2001; Levy 2008)."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bilm.data.tokenization import check_batch, checked_sentence
from bilm.scoring.memory.prediction import Memory
from bilm.scoring.scorer import Scorer
from bilm.scoring.scores import Predicted, Score, Substitute

NATS_PER_BIT = math.log(2)
WORDS = {"forward": slice(-1), "backward": slice(1, None)}  # places of words in `Score`'s arrays


class Surprisal(NamedTuple):
    """The surprisal of the words w_1 ... w_T of a sentence, -log2 p(w_i | context), in bits.

    The context of `forward` is the words to the left, w_1 ... w_i-1, and that of `backward` is the
    words to the right, w_i+1 ... w_T. Each field has T entries: the marks `<S>` and `</S>`, which
    `Score` contains, are left out. Numbers are float64, or nan if a model does not predict them.

    The surprisal of a word that the vocabulary lacks is that of `<UNK>`, which all such words
    share; do not compare it with others.
    """

    word: list[str]
    characters: np.ndarray  # int64: number of Unicode code points
    known: np.ndarray  # boolean: whether the vocabulary contains the word
    forward: np.ndarray
    backward: np.ndarray
    forward_cumulative: np.ndarray  # sum from the first word to this one
    backward_cumulative: np.ndarray  # sum from the last word back to this one
    forward_entropy: np.ndarray  # of the distribution over the vocabulary with its marks: the
    backward_entropy: np.ndarray  # expected surprisal in bits
    forward_rank: np.ndarray  # 1 plus the number of likelier words
    backward_rank: np.ndarray
    forward_top: list[str]  # the likeliest words with their surprisal: `chair:1.9 bed:2.25`
    backward_top: list[str]
    region: np.ndarray  # int64: number of marks before the word, see `word_surprisals`

    @classmethod
    def of(cls, score: Score) -> Surprisal:
        """Convert log-probabilities in nats to bits."""
        words = score.tokens
        unknown = np.full(len(words) + 1, np.nan)
        undescribed = [Predicted(math.nan, math.nan, [])] * (len(words) + 1)
        described = score.predicted or {}
        columns: dict[str, Any] = {}
        for direction, places in WORDS.items():
            logs = score.logs.get(direction, unknown)[places]  # T
            predicted = described.get(direction, undescribed)[places]
            entropies = np.array([place.entropy for place in predicted])
            columns[direction] = logs.astype(np.float64) / -NATS_PER_BIT
            columns[f"{direction}_entropy"] = entropies / NATS_PER_BIT
            columns[f"{direction}_rank"] = np.array([place.rank for place in predicted], float)
            columns[f"{direction}_top"] = [_listed(place.likeliest) for place in predicted]
        return cls(
            word=words,
            characters=np.array([len(word) for word in words], np.int64),
            known=score.is_known[:-1],
            forward_cumulative=np.cumsum(columns["forward"]),
            backward_cumulative=np.cumsum(columns["backward"][::-1])[::-1],
            region=np.zeros(len(words), np.int64),
            **columns,
        )


def _listed(words: Iterable[Substitute]) -> str:
    """Return words with their surprisal in bits, as in `chair:1.9 bed:2.25`."""
    return " ".join(f"{word}:{log / -NATS_PER_BIT:.4g}" for word, log in words)


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
            tokens = sentence.split() if isinstance(sentence, str) else sentence
            words = checked_sentence(tokens, f"sentence {number}")
            is_mark = np.array([word == mark for word in words], bool)
            regions.append(np.cumsum(is_mark)[~is_mark])
            yield [word for word in words if word != mark]

    for score in scorer.score(unmarked(), context, top):
        surprisal = Surprisal.of(memory.mixed(score) if memory else score)
        yield surprisal._replace(region=regions.popleft())


def by_region(surprisal: Surprisal) -> dict[str, Any]:
    """Return a row for each region that contains words; `known` states whether all words are, and
    the sum of surprisal is -log2 of the probability of the region given its context."""
    n_words = np.bincount(surprisal.region)
    n_unknown = np.bincount(surprisal.region, ~surprisal.known)
    regions = np.flatnonzero(n_words)
    words = np.array(surprisal.word)
    table = {
        "region": regions,
        "words": [" ".join(words[surprisal.region == region]) for region in regions],
        "n_words": n_words[regions],
        "known": n_unknown[regions] == 0,
    }
    for direction in ("forward", "backward"):
        bits = np.bincount(surprisal.region, getattr(surprisal, direction))
        table[f"{direction}_sum"] = bits[regions]
        table[f"{direction}_mean"] = bits[regions] / n_words[regions]
    return table


def columns_of(surprisal: Surprisal, regions: bool = False) -> dict[str, list]:
    """Return the columns of `bilm surprisal` for a sentence, without its place: a row per word, or
    per region."""
    columns = {"position": np.arange(len(surprisal.word)), **surprisal._asdict()}
    if regions:
        columns = by_region(surprisal)
    return {name: np.asarray(values).tolist() for name, values in columns.items()}


def surprisal_table(
    scorer: Scorer, sentences: Iterable[Sequence[str]], mark: str | None = None, **how: Any
) -> dict[str, list]:
    """Return the columns of `bilm surprisal` for all sentences: a row per word, or per region with
    `mark`. The arguments are those of `word_surprisals`.

    Example:
        table = surprisal_table(scorer, ["She rose .", "He sat ."], context=1, top=3)
        frame = pandas.DataFrame(table)
    """
    table: dict[str, list] = defaultdict(list)
    for number, surprisal in enumerate(word_surprisals(scorer, sentences, mark=mark, **how)):
        columns = columns_of(surprisal, regions=mark is not None)
        table["sentence"] += [number] * len(columns["known"])
        for name, values in columns.items():
            table[name] += values
    return dict(table)
