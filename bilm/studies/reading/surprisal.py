"""Surprisal: the information in bits that each word of a sentence carries for a language model
(Hale 2001; Levy 2008)."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from bilm.data import Vocabulary, checked_sentences
from bilm.errors import DataError, WeightsError
from bilm.scoring import Ngrams, Predicted, Score, Scorer, SecondModel
from bilm.storage import numbers, open_hdf5, strings
from bilm.support import NGRAM_COUNTS

NATS_PER_BIT = math.log(2)
WORDS = {"forward": slice(-1), "backward": slice(1, None)}  # places of words in `Score`'s arrays

Columns = dict[str, Any]  # arrays or lists with an entry for each word of a sentence
Trigrams = Callable[[Sequence[str]], Columns]  # see `load_trigrams`


def load_trigrams(path: str | Path) -> Trigrams:
    """Return the function from the words of a sentence to its columns of trigram surprisal, by a
    file that `bilm vocab --ngrams` wrote. Raises: WeightsError for a damaged or another file."""
    with open_hdf5(path) as file:
        words = strings(file, "vocabulary")
        ngrams = Ngrams(numbers(file, NGRAM_COUNTS)[...], len(words))
    if not ngrams.has_order(3):
        raise WeightsError(
            f"{path}: {NGRAM_COUNTS} does not contain counts of triples of words; expected a file "
            "that bilm vocab --ngrams wrote"
        )
    vocabulary = Vocabulary(path, words=words)

    def columns(sentence: Sequence[str]) -> Columns:
        ids = np.array([vocabulary.eos, *vocabulary.known_ids(sentence)], np.int64)
        is_known = [word in vocabulary for word in sentence]
        bits = -np.log2(ngrams.probabilities(ids))
        return {"trigram": bits, "trigram_known": is_known}

    return columns


def word_surprisals(
    scorer: Scorer,
    sentences: Iterable[Sequence[str]],
    context: int = 0,
    top: int = 0,
    mark: str | None = None,
    region_names: Sequence[str] | None = None,
    is_item: bool = False,
    memory: SecondModel | None = None,
    trigrams: Trigrams | None = None,
) -> Iterator[Columns]:
    """Yield the surprisal of the words of each sentence, in order and in bounded memory.

    Args:
        scorer: the language model, for example `bilm.load_scorer("novels-en")`.
        sentences: lists of words, or strings, which are split at blanks.
        context: see `Scorer.score`.
        top: number of likeliest words.
        mark: word such as `|` between the regions of a sentence, which the model does not read.
        region_names: names of the regions, from that before the first mark; None for their words.
        is_item: whether the first `context` sentences are the context of each other one.
        memory: mixed with the model, except in entropies, ranks and likeliest words.
        trigrams: the result of `load_trigrams`, for more columns, which read no context.
    Yields: the columns that `bilm surprisal --help` explains, without the place: float64, int64 and
        boolean arrays and lists of strings (T,). The surprisal of a word that the vocabulary lacks
        is that of `<UNK>`, which all such words share; do not compare it with others.
    Raises: DataError if a sentence is neither a string nor a list of words, has several
        regions, but another number of names, or contains the mark in a word.
    """

    def read() -> Iterator[tuple[np.ndarray | None, list[str]]]:
        """Yield the region of each word, None for a context that is read again, and the words."""
        first: list[list[str]] = []
        for number, words in enumerate(checked_sentences(sentences, str.split)):
            is_mark = np.array([word == mark for word in words], bool)
            joined = [word for word in words if mark and mark in word and word != mark]
            if mark and joined and not mark.isalnum():
                raise DataError(
                    f"sentence {number}: {joined[0]!r} contains the mark {mark}; separate it with "
                    "blanks"
                )
            unmarked = [word for word in words if word != mark]
            if is_item and number < context:
                first.append(unmarked)
            elif number > context:  # another sentence is between the context and this one
                yield from ((None, words) for words in first)
            yield np.cumsum(is_mark)[~is_mark], unmarked

    to_score, to_place = tee(read())
    scores = scorer.score((words for _, words in to_score), context, top)
    for (regions, _), score in zip(to_place, scores, strict=True):
        if regions is None:
            continue
        columns = columns_of(memory.mixed(score) if memory else score)
        if trigrams is not None:
            columns |= trigrams(score.tokens)
        if mark is not None:
            columns |= columns_of_regions(columns, regions, region_names)
        yield columns


def columns_of(score: Score) -> Columns:
    """Return the columns of `word_surprisals` for a sentence, without those of regions."""
    words = score.tokens
    columns: Columns = {
        "position": np.arange(len(words)),
        "word": words,
        "characters": np.array([len(word) for word in words], np.int64),
        "known": score.is_known[:-1],
    }
    unknown = np.full(len(words) + 1, np.nan)
    undescribed = [Predicted(math.nan, math.nan, [])] * (len(words) + 1)
    described = score.predicted or {}
    for direction, places in WORDS.items():
        logs = score.logs.get(direction, unknown)[places]  # T
        predicted = described.get(direction, undescribed)[places]
        bits = logs.astype(np.float64) / -NATS_PER_BIT
        in_order = slice(None, None, -1 if direction == "backward" else 1)  # of reading
        entropies = np.array([place.entropy for place in predicted])
        columns[direction] = bits
        columns[f"{direction}_cumulative"] = np.cumsum(bits[in_order])[in_order]
        columns[f"{direction}_entropy"] = entropies / NATS_PER_BIT
        columns[f"{direction}_rank"] = np.array([place.rank for place in predicted], float)
        # The words with their surprisal, as in `chair:1.9 bed:2.25`
        columns[f"{direction}_top"] = [
            " ".join(f"{word}:{log / -NATS_PER_BIT:.4g}" for word, log in place.likeliest)
            for place in predicted
        ]
    return columns


def columns_of_regions(
    columns: Columns, regions: np.ndarray, names: Sequence[str] | None = None
) -> Columns:
    """Return the columns of regions, from the number of each word's region (T,)."""
    numbers = regions.tolist()
    if names is None:
        words: dict[int, list[str]] = defaultdict(list)
        for region, word in zip(numbers, columns["word"], strict=True):
            words[region].append(word)
        region_names = [" ".join(words[region]) for region in numbers]
    elif len(names) > 1 and not regions.any():  # a sentence without marks is a context
        region_names = [""] * len(numbers)
    elif numbers and numbers[-1] + 1 != len(names):
        raise DataError(
            f"found {numbers[-1] + 1} regions in {' '.join(columns['word'])[:40]!r}, but "
            f"{len(names)} names of regions"
        )
    else:
        region_names = [names[region] for region in numbers]
    of_regions: Columns = {"region": regions, "region_name": region_names}
    for direction in WORDS:
        bits = np.bincount(regions, columns[direction])
        of_regions[f"region_{direction}"] = bits[regions]
    return of_regions


def rows_of(columns: Columns) -> dict[str, list]:
    """Return the columns of a sentence as lists of Python's values."""
    return {name: np.asarray(values).tolist() for name, values in columns.items()}


def surprisal_table(
    scorer: Scorer, sentences: Iterable[Sequence[str]], **how: Any
) -> dict[str, list]:
    """Return the columns of `bilm surprisal` for all sentences, with a row per word; `sentence` is
    the number of the sentence. The arguments are those of `word_surprisals`."""
    table: dict[str, list] = defaultdict(list)
    for number, columns in enumerate(word_surprisals(scorer, sentences, **how)):
        table["sentence"] += [number] * len(columns["word"])
        for name, values in rows_of(columns).items():
            table[name] += values
    return dict(table)
