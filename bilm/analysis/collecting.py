"""Collecting the usages of words from texts, and writing their table."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.analysis.queries import Matcher, Query
from bilm.analysis.usages import (
    DTYPES,
    ROWS,
    SUBSTITUTES,
    Description,
    Grouping,
    Usage,
    UsagesFile,
    columns_of,
    writing,
)
from bilm.data.readers import Corpus
from bilm.data.vocabulary import MARKS
from bilm.errors import DataError, OptionsError
from bilm.support.model_files import protect
from bilm.support.progress import progress

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.scoring.scorer import Scorer

SAMPLE = 1_000  # usages per word and grouping


class Found(NamedTuple):
    """The usages of words in texts, before vectors are computed.

    Fields:
        usages: ordered by word, grouping and place.
        description: counts and groupings, without a model.
    """

    usages: list[Usage]
    description: Description


def find_usages(
    texts: Mapping[str, Sequence[Corpus]],
    queries: Sequence[Query],
    *,
    ignore_case: bool = False,
    lemma: bool = False,
    tags: Container[str] | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> Found:
    """Find the usages of words in one pass over texts.

    Of the usages of a word in a grouping, `sample` are kept, drawn uniformly (algorithm R of
    Vitter 1985, Random Sampling with a Reservoir). The sample of a word depends only on the seed,
    the word, the grouping and its text. Memory is proportional to the number of kept usages.

    Args:
        texts: the files of each grouping.
        queries: the words to find.
        ignore_case: whether case is ignored.
        lemma: whether lemmas of the text are compared with the words instead of forms.
        tags: parts of speech to keep; None for all.
        sample: maximum number of usages per word and grouping; None for all.
        seed: seed of the sample.
    Raises: DataError for a text that cannot be read, without annotation if `lemma` or `tags` is
        given, or without any usage.
    """
    matcher = Matcher(queries, ignore_case)
    names = [query.name for query in queries]
    kept: dict[tuple[int, int], Reservoir] = {}
    groupings = []
    with progress("finding", "sentences") as shown:
        for number, (grouping, corpora) in enumerate(texts.items()):
            for k, name in enumerate(names):
                kept[k, number] = Reservoir(sample, f"{seed}\0{name}\0{grouping}")
            n_sentences = n_tokens = 0
            for corpus in corpora:
                for line, record in enumerate(shown.over(corpus.annotated()), 1):
                    if not record.words:
                        continue
                    n_sentences += 1
                    n_tokens += len(record.words)
                    if (lemma or tags is not None) and record.lemmas is None:
                        raise DataError(
                            f"{corpus.path}: contains no lemmas and parts of speech; --lemma and "
                            "--tags require CoNLL-U (.conllu)"
                        )
                    own = record.lemmas if lemma and record.lemmas else record.words
                    for position, k in matcher.matches(own):
                        tag = record.tags[position] if record.tags else None
                        if tags is not None and tag not in tags:
                            continue
                        identifier = f"{corpus.path}:{line}:{position}"
                        kept[k, number].add(
                            Usage(
                                names[k], grouping, identifier, corpus.path, line, position,
                                record.words, record.lemmas[position] if record.lemmas else None,
                                tag,
                            )
                        )  # fmt: skip
            paths = tuple(corpus.path for corpus in corpora)
            groupings.append(Grouping(grouping, paths, n_sentences, n_tokens))
    counts = {
        name: {g.name: kept[k, n].n_seen for n, g in enumerate(groupings)}
        for k, name in enumerate(names)
    }
    if not any(map(bool, (n for found in counts.values() for n in found.values()))):
        raise DataError(
            f"none of the {len(names):,} words occurs in {', '.join(texts)}; compare their case "
            "and spelling with the text"
        )
    usages = [usage for key in sorted(kept) for usage in kept[key].sorted()]
    return Found(usages, Description(tuple(groupings), counts, sample=sample, seed=seed))


class Reservoir:
    """A uniform sample of a stream of usages.

    Args:
        size: maximum number of usages that are kept; None for all.
        seed: the sample depends on this text and on the stream.
    Attributes: `n_seen`, the number of usages in the stream so far.
    """

    def __init__(self, size: int | None, seed: str):
        self.size, self.n_seen = size, 0
        self._kept: list[tuple[int, Usage]] = []
        self._random = random.Random(seed)

    def add(self, usage: Usage) -> None:
        """Keep a usage, or drop it or another one at random."""
        number, self.n_seen = self.n_seen, self.n_seen + 1
        if self.size is None or number < self.size:
            self._kept.append((number, usage))
        elif (place := self._random.randrange(number + 1)) < self.size:
            self._kept[place] = number, usage

    def sorted(self) -> list[Usage]:
        """Return the sample in the order of the stream."""
        return [usage for _, usage in sorted(self._kept, key=lambda pair: pair[0])]


def write_usages(
    found: Found,
    embedder: ElmoEmbedder,
    output: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dtype: str = "float32",
    scorer: Scorer | None = None,
    n_substitutes: int = 0,
) -> UsagesFile:
    """Compute the vectors of usages and write their table, in bounded memory.

    Args:
        found: result of `find_usages` or `bilm.analysis.dwug.read_dwug`.
        embedder: computes the vectors; each sentence starts from zero state.
        output: the Parquet file.
        layers: numbers of the layers to store; None for all.
        dtype: dtype of the stored vectors, float32 or float16.
        scorer: computes substitutes; required if `n_substitutes` is positive.
        n_substitutes: number of substitutes per usage.
    Raises: OptionsError for a layer that does not exist; DataError if `output` is one of the texts
        or belongs to a model.
    """
    numbers = list(range(embedder.n_layers)) if layers is None else list(layers)
    if not numbers or not all(0 <= k < embedder.n_layers for k in numbers):
        raise OptionsError(
            f"layers are {numbers}, expected numbers from 0 to {embedder.n_layers - 1}"
        )
    if dtype not in DTYPES:
        raise OptionsError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    if n_substitutes and scorer is None:
        raise OptionsError("substitutes require a scorer")
    substituter = _Substituter(scorer, n_substitutes) if scorer and n_substitutes else None
    stored = embedder.stored
    description = Description(
        **{
            **found.description.__dict__,
            "layers": tuple(numbers),
            "dim": embedder.dim,
            "model": str(stored),
            "digest": stored.digest,
        }
    )
    texts = [text for grouping in description.groupings for text in grouping.texts]
    protect(output, *texts, *stored.own_files)
    sentences = (usage.words for usage in found.usages)
    embedded = embedder.embed_sentences(sentences, numbers)
    with (
        progress("embedding", "usages", len(found.usages)) as shown,
        writing(output, description, dtype, substituter is not None) as writer,
    ):
        for part in _parts(found.usages):
            vectors: np.ndarray = np.empty((len(numbers), len(part), embedder.dim), np.float32)
            for k, (usage, values) in enumerate(
                zip(part, islice(embedded, len(part)), strict=True)
            ):
                vectors[:, k] = values[:, usage.position]
                if substituter is None:
                    shown.add(1)
            columns = columns_of(part)
            if substituter is not None:
                pairs = [substituter(usage) for usage in shown.over(part)]
                columns |= dict(zip(SUBSTITUTES, map(list, zip(*pairs, strict=True)), strict=True))
            writer.write(columns, dict(zip(numbers, vectors, strict=True)))
    return UsagesFile(output)


def _parts(usages: Sequence[Usage]) -> Iterator[list[Usage]]:
    """Yield the usages in row groups: at most `ROWS`, of one word."""
    part: list[Usage] = []
    for usage in usages:
        if part and (len(part) == ROWS or usage.word != part[0].word):
            yield part
            part = []
        part.append(usage)
    if part:
        yield part


class _Substituter:
    """Finds the likeliest words at the place of a usage.

    For a model of two directions the probability of a word is proportional to the product of its
    probabilities in both directions. The marks `<S>`, `</S>` and `<UNK>` are left out.
    """

    def __init__(self, scorer: Scorer, n: int):
        self.scorer, self.n = scorer, n
        self._proper = np.array([word not in MARKS for word in scorer.words])

    def __call__(self, usage: Usage) -> tuple[list[str], list[float]]:
        """Return the words and their probabilities, in descending order."""
        (logs,) = self.scorer.log_probabilities(usage.words, [usage.position])
        total = np.sum(list(logs.values()), axis=0, dtype=np.float64)
        shares = np.exp(total - total.max()) * self._proper
        shares /= shares.sum()
        order = np.argsort(-shares, kind="stable")[: self.n]
        return [self.scorer.words[k] for k in order], shares[order].tolist()
