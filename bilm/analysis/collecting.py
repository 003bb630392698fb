"""Collecting the usages of words from texts, and writing their table."""

from __future__ import annotations

import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from bilm.analysis.usages import (
    Description,
    Grouping,
    Usage,
    Usages,
    UsagesFile,
    as_sentence,
    frame_of,
    write_table,
)
from bilm.data.readers import Corpus, Record
from bilm.data.signs import TextSigns
from bilm.data.text import matching_files, read_lines
from bilm.errors import DataError, OptionsError
from bilm.support.files import protect, scratch
from bilm.support.progress import progress

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.storage.stored_model import StoredModel

SAMPLE = 1_000  # usages per word and grouping
MAX_FORMS = 1_000_000  # of a text, whose queries are kept in memory
NAMED = re.compile(r"(?P<name>\S+):\s+(?P<forms>\S.*)")


# --- the words to find ---


class Query(NamedTuple):
    """A word to look for.

    Fields:
        name: its name in the table of usages.
        forms: forms of the word, or lemmas.
        patterns: regular expressions that a whole form may match instead.
    """

    name: str
    forms: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] = ()


def parse_query(line: str, where: str) -> Query:
    """Read an entry of a list of words.

    `cell` is one form, `cell: cell cells` gives several forms a name, and a part between slashes
    such as `/cells?/` is a regular expression that must match a whole form.

    Args:
        line: the entry.
        where: its place, for messages.
    Raises: DataError for an entry without forms, or an invalid expression.
    """
    text = line.strip()
    named = NAMED.fullmatch(text)
    parts = named["forms"].split() if named else text.split()
    if not parts or (len(parts) > 1 and not named):
        raise DataError(
            f"{where}: {line!r}; expected one form, an expression such as /cells?/, or a name with "
            "several of them, such as cell: cell cells"
        )
    expressions = [part for part in parts if len(part) > 2 and part[0] == part[-1] == "/"]
    try:
        patterns = tuple(re.compile(part[1:-1]) for part in expressions)
    except re.error as error:
        raise DataError(f"{where}: {line}: {error}; expected a regular expression") from None
    forms = frozenset(parts) - frozenset(expressions)
    return Query(named["name"] if named else text, forms, patterns)


def read_queries(path: str) -> list[Query]:
    """Read a list of words, one entry per line: see `parse_query`. Blank lines are skipped."""
    lines = ((number, line) for number, line in read_lines(path) if line)
    return [parse_query(line, f"{path}, line {number}") for number, line in lines]


def matcher(
    queries: Sequence[Query], ignore_case: bool = False
) -> Callable[[str], tuple[int, ...]]:
    """Return a function from a form to the numbers of the queries that it matches.

    Raises: DataError if there are no queries, or two of the same name.
    """
    counts = Counter(query.name for query in queries)
    if not counts:
        raise DataError("the list of words is empty; expected at least one")
    name, times = counts.most_common(1)[0]
    if times > 1:
        raise DataError(f"{name!r} is in the list of words twice")
    fold, flags = (str.casefold, re.IGNORECASE) if ignore_case else (str, 0)
    by_form: dict[str, set[int]] = {}
    patterns: list[tuple[int, re.Pattern[str]]] = []
    for number, query in enumerate(queries):
        for form in query.forms:
            by_form.setdefault(fold(form), set()).add(number)
        for pattern in query.patterns:
            patterns.append((number, re.compile(pattern.pattern, pattern.flags | flags)))

    @lru_cache(MAX_FORMS)
    def matches(form: str) -> tuple[int, ...]:
        matched = {number for number, pattern in patterns if pattern.fullmatch(form)}
        return tuple(sorted(matched | by_form.get(fold(form), set())))

    return matches


# --- finding usages ---


class Found(NamedTuple):
    """The usages of words in texts, before vectors are computed.

    Fields:
        usages: ordered by word, grouping and place.
        description: counts and groupings, without a model.
    """

    usages: list[Usage]
    description: Description


class Samples:
    """Uniform samples of the usages of each word in each grouping, and their counts.

    Algorithm R of Vitter 1985, Random Sampling with a Reservoir. A sample depends only on the
    seed, the word, the grouping and its stream of usages.

    Args:
        size: maximum number of usages that are kept per word and grouping; None for all.
        seed: seed of the samples.
    """

    def __init__(self, size: int | None, seed: int):
        self.size, self.seed = size, seed
        self.counts: Counter[tuple[str, str]] = Counter()
        self._kept: defaultdict[tuple[str, str], dict[int, tuple[int, Usage]]] = defaultdict(dict)
        self._random: dict[tuple[str, str], random.Random] = {}

    def add(self, word: str, grouping: str, make: Callable[[], Usage]) -> None:
        """Count a usage, and keep the result of `make` if it is drawn, perhaps instead of an
        earlier one."""
        key = word, grouping
        place = self.counts[key]
        self.counts[key] += 1
        if self.size is not None and place >= self.size:
            if key not in self._random:
                self._random[key] = random.Random(f"{self.seed}\0{word}\0{grouping}")
            place = self._random[key].randrange(place + 1)
            if place >= self.size:
                return
        self._kept[key][place] = self.counts[key], make()

    def found(self, words: Collection[str], groupings: Sequence[Grouping]) -> Found:
        """Return the samples of some words in the order of words, groupings and streams."""
        names = [grouping.name for grouping in groupings]
        usages = [
            usage
            for key in product(words, names)
            for _, usage in sorted(self._kept[key].values(), key=itemgetter(0))
        ]
        counts = {word: {name: self.counts[word, name] for name in names} for word in words}
        description = Description(tuple(groupings), counts, sample=self.size, seed=self.seed)
        return Found(usages, description)


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

    Memory is proportional to the number of kept usages, about 400 bytes plus the length of the
    sentence each.

    Args:
        texts: the files of each grouping.
        queries: the words to find.
        ignore_case: whether case is ignored.
        lemma: whether lemmas of the text are compared with the words instead of forms.
        tags: parts of speech to keep; None for all.
        sample: maximum number of usages per word and grouping, drawn at random; None for all.
        seed: seed of the samples: see `Samples`.
    Raises: DataError for a text that cannot be read, without annotation if `lemma` or `tags` is
        given, or without any usage.
    """
    match, samples = matcher(queries, ignore_case), Samples(sample, seed)
    names = [query.name for query in queries]
    groupings = []
    with progress("finding", "sentences") as shown:
        for grouping, corpora in texts.items():
            n_sentences = n_tokens = 0
            for corpus in corpora:
                for line, record in enumerate(shown.over(corpus), 1):
                    n_sentences += bool(record.words)
                    n_tokens += len(record.words)
                    for k, position in _matches(record, match, lemma, tags, corpus.path):
                        place = names[k], grouping, corpus.path, line, position
                        samples.add(names[k], grouping, partial(_usage, *place, record))
            paths = tuple(corpus.path for corpus in corpora)
            groupings.append(Grouping(grouping, paths, n_sentences, n_tokens))
    if not samples.counts:
        raise DataError(
            f"none of the {len(names):,} words occurs in {', '.join(texts)}; compare their case "
            "and spelling with the text"
        )
    return samples.found(names, groupings)


def _matches(
    record: Record,
    match: Callable[[str], tuple[int, ...]],
    lemma: bool,
    tags: Container[str] | None,
    path: str,
) -> list[tuple[int, int]]:
    """Return the number of the query and the position of each match in a sentence."""
    if record.words and (lemma or tags is not None) and record.lemmas is None:
        raise DataError(
            f"{path}: contains no lemmas and parts of speech; --lemma and --tags require CoNLL-U "
            "(.conllu)"
        )
    words = record.lemmas if lemma and record.lemmas else record.words
    matches = [(k, position) for position, word in enumerate(words) if word for k in match(word)]
    if tags is None or record.tags is None:
        return matches
    return [(k, position) for k, position in matches if record.tags[position] in tags]


def _usage(word: str, grouping: str, path: str, line: int, position: int, record: Record) -> Usage:
    lemma, tag = (
        None if values is None else values[position] for values in (record.lemmas, record.tags)
    )
    identifier, sentence = f"{path}:{line}:{position}", as_sentence(record.words)
    return Usage(word, grouping, identifier, path, line, position, sentence, lemma, tag)


def open_texts(
    texts: Mapping[str, str | Path | Sequence[str | Path]],
    column: str | None = None,
    tokenize: str | None = None,
    on_bad_utf8: str = "error",
) -> dict[str, list[Corpus]]:
    """Open the files of groupings, in any input form, plain or compressed.

    Args:
        texts: for each grouping, a file or a pattern, or several of them. A file that several
            patterns match is read once.
        column, tokenize, on_bad_utf8: see `bilm.data.readers.Corpus`.
    Raises: DataError if a file is missing or an argument does not apply to it.
    """
    opened, signs = {}, TextSigns(", ".join(texts))
    for grouping, given in texts.items():
        patterns = [given] if isinstance(given, str | Path) else given
        paths = [path for pattern in patterns for path in matching_files(pattern)]
        distinct: dict[str, str] = {}
        for path in paths:
            distinct.setdefault(os.path.realpath(path), path)
        opened[grouping] = [
            Corpus(path, column, tokenize=tokenize, on_bad_utf8=on_bad_utf8, signs=signs)
            for path in distinct.values()
        ]
    return opened


# --- vectors ---


def collect_usages(
    model: str | Path | StoredModel,
    words: Iterable[str],
    texts: Mapping[str, str | Path | Sequence[str | Path]],
    *,
    layers: Sequence[int] | None = None,
    column: str | None = None,
    tokenize: str | None = None,
    on_bad_utf8: str = "error",
    **how: Any,
) -> Usages:
    """Return the usages of words in texts with their vectors, in memory.

    Args:
        model: a stored model, see `bilm.storage.stored_model.open_model`.
        words: entries as in a list of words, see `parse_query`.
        texts: for each grouping, a file or a pattern, or several of them.
        layers: numbers of the layers; None for all.
        column, tokenize, on_bad_utf8: see `bilm.data.readers.Corpus`.
        how: `ignore_case`, `lemma`, `tags`, `sample` and `seed` of `find_usages`.
    Raises: as `find_usages` and `write_usages` do.

    Example:
        usages = collect_usages("novels-en", ["cell: cell cells"], {"then": "then.txt"})
    """
    from bilm.embedding.embedder import ElmoEmbedder

    queries = [parse_query(word, "words") for word in words]
    found = find_usages(open_texts(texts, column, tokenize, on_bad_utf8), queries, **how)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "usages.parquet"
        return write_usages(found, ElmoEmbedder(model), path, layers=layers).read()


def write_usages(
    found: Found,
    embedder: ElmoEmbedder,
    output: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dtype: str = "float32",
) -> UsagesFile:
    """Compute the vectors of usages and write their table, in bounded memory.

    Each sentence is embedded once, in the order of the texts. A temporary file beside the output
    contains the vectors until they are written in the order of the table; it is as large as the
    vectors.

    Args:
        found: result of `find_usages` or `bilm.analysis.dwug.read_dwug`.
        embedder: computes the vectors; each sentence starts from zero state.
        output: the Parquet file.
        layers: numbers of the layers to store; None for all.
        dtype: dtype of the stored vectors, float32 or float16.
    Raises: OptionsError for a layer that does not exist; DataError if `output` is one of the texts
        or belongs to a model.
    """
    numbers = list(range(embedder.n_layers)) if layers is None else list(dict.fromkeys(layers))
    if not numbers or not all(0 <= k < embedder.n_layers for k in numbers):
        raise OptionsError(
            f"layers are {numbers}, expected numbers from 0 to {embedder.n_layers - 1}"
        )
    usages, stored = found.usages, embedder.stored
    fields = {"layers": tuple(numbers), "dim": embedder.dim}
    fields |= {"model": str(stored), "digest": stored.digest}
    description = Description(**{**found.description.__dict__, **fields})
    texts = [text for grouping in description.groupings for text in grouping.texts]
    protect(output, *texts, *stored.own_files)
    with scratch(output) as folder:
        with open(folder / "vectors", "wb") as file:
            _embed(usages, embedder, numbers, dtype, file)
        shape = len(usages), len(numbers), embedder.dim
        vectors: np.ndarray = np.memmap(folder / "vectors", dtype, "r", shape=shape)

        def words() -> Iterator[Usages]:
            stop = 0
            for _, group in groupby(usages, lambda usage: usage.word):
                own = list(group)
                start, stop = stop, stop + len(own)
                arrays = {layer: vectors[start:stop, k] for k, layer in enumerate(numbers)}
                yield Usages(frame_of(own), arrays, description)

        write_table(output, description, dtype, words())
    return UsagesFile(output)


def _embed(
    usages: Sequence[Usage],
    embedder: ElmoEmbedder,
    layers: Sequence[int],
    dtype: str,
    file: BinaryIO,
) -> None:
    """Write the vectors of usages, an array (N, layers, D), to a file."""

    def place(k: int) -> tuple[str, int, str]:
        return usages[k].text, usages[k].line, usages[k].sentence

    order = sorted(range(len(usages)), key=place)
    sentences = (usages[next(same)].words for _, same in groupby(order, place))
    embedded = embedder.embed_sentences(sentences, layers)
    with progress("embedding", "usages", len(usages)) as shown:
        for _, same in groupby(order, place):
            vectors: np.ndarray = next(embedded).astype(dtype)
            for k in same:
                content = vectors[:, usages[k].position].tobytes()
                file.seek(k * len(content))
                file.write(content)
                shown.add(1)
