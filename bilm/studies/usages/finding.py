"""Finding the usages of words in texts, without their vectors."""

import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bilm.data import Corpus, Profile, Reading, Record, TextSigns, matching_files, read_lines
from bilm.errors import DataError
from bilm.studies.usages.usages import Description, Grouping, Usage
from bilm.support import Progress

SAMPLE = 1_000  # usages per word and grouping
MAX_FORMS = 1_000_000  # of a text, whose queries are kept in memory
NAMED = re.compile(r"(?P<name>\S+):\s+(?P<forms>\S.*)")
EXPRESSION = re.compile("/(?P<pattern>.+)/")

Key = tuple[str, str]  # a word and a grouping
Texts = Mapping[str, str | Path | Sequence[str | Path]]  # files or patterns by grouping


class Query(NamedTuple):
    """A word to look for."""

    name: str  # in the table of usages
    forms: frozenset[str]  # or lemmas
    patterns: tuple[re.Pattern[str], ...] = ()  # which a whole form may match instead


def parse_query(line: str, where: str) -> Query:
    """Read an entry of a list of words; `where` is its place, for messages. `cell` is one form,
    `cell: cell cells` gives several forms a name, and `/cells?/` is a regular expression that must
    match a whole form. Raises: DataError without forms, or for an invalid expression."""
    text = line.strip()
    named = NAMED.fullmatch(text)
    name = named["name"] if named else text
    entries = named["forms"].split() if named else text.split()
    if not entries or (len(entries) > 1 and not named):
        raise DataError(
            f"{where}: {line!r}; expected one form, an expression such as /cells?/, or a name with "
            "several of them, such as cell: cell cells"
        )
    forms, patterns = set(), []
    try:
        for entry in entries:
            if expression := EXPRESSION.fullmatch(entry):
                patterns.append(re.compile(expression["pattern"]))
            else:
                forms.add(entry)
    except re.error as error:
        raise DataError(f"{where}: {line}: {error}; expected a regular expression") from None
    return Query(name, frozenset(forms), tuple(patterns))


def read_queries(path: str) -> list[Query]:
    """Read a list of words, one entry per line: see `parse_query`. Blank lines are skipped."""
    lines = ((number, line) for number, line in read_lines(path) if line)
    return [parse_query(line, f"{path}, line {number}") for number, line in lines]


def matcher(queries: Iterable[Query], ignore_case: bool = False) -> Callable[[str], frozenset[str]]:
    """Return a function from a form to the names of the queries that it matches."""
    fold = str.casefold if ignore_case else str
    by_form: dict[str, set[str]] = defaultdict(set)
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for query in queries:
        for form in query.forms:
            by_form[fold(form)].add(query.name)
        for pattern in query.patterns:
            flags = pattern.flags | re.IGNORECASE if ignore_case else pattern.flags
            patterns.append((query.name, re.compile(pattern.pattern, flags)))

    @lru_cache(MAX_FORMS)
    def matches(form: str) -> frozenset[str]:
        names = {name for name, pattern in patterns if pattern.fullmatch(form)}
        return frozenset(names | by_form.get(fold(form), set()))

    return matches


class FoundUsages(NamedTuple):
    """The usages of words in texts, before vectors are computed."""

    usages: list[Usage]  # ordered by word, grouping and place
    description: Description  # counts and groupings, without a model


class Samples:
    """Uniform samples of at most `size` usages, None for all, of each word in each grouping:
    algorithm R of Vitter 1985, Random Sampling with a Reservoir. A sample depends only on the seed,
    the word, the grouping and the order of their usages."""

    def __init__(self, size: int | None, seed: int):
        self.size = size
        self.seed = seed
        # The numbers of usages so far, and those drawn, after their numbers
        self._counts = Counter[Key]()
        self._drawn: dict[Key, list[tuple[int, Usage]]] = defaultdict(list)
        self._random: dict[Key, random.Random] = {}

    def add(self, usage: Usage) -> None:
        """Count a usage, and put it in its sample if it is drawn, perhaps instead of another."""
        key = usage.word, usage.grouping
        number = self._counts[key]
        self._counts[key] += 1
        if self.size is None or number < self.size:
            self._drawn[key].append((number, usage))
            return
        if key not in self._random:
            self._random[key] = random.Random("\0".join([str(self.seed), *key]))
        place = self._random[key].randrange(number + 1)
        if place < self.size:
            self._drawn[key][place] = number, usage

    def result(self, words: Iterable[str], groupings: Sequence[Grouping]) -> FoundUsages:
        """Return the samples of some words in the order of words, groupings and texts."""
        usages: list[Usage] = []
        counts: dict[str, dict[str, int]] = {}
        for word in words:
            counts[word] = {}
            for grouping in groupings:
                key = word, grouping.name
                counts[word][grouping.name] = self._counts[key]
                usages += (usage for _, usage in sorted(self._drawn[key]))
        return FoundUsages(usages, Description(groupings, counts, sample=self.size, seed=self.seed))


def find_usages(
    texts: Mapping[str, Sequence[Corpus]],
    queries: Sequence[Query],
    *,
    ignore_case: bool = False,
    lemma: bool = False,
    tags: Container[str] | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
) -> FoundUsages:
    """Find the usages of words in one pass over texts.

    Args:
        texts: the files of each grouping.
        lemma: whether lemmas of the text are compared with the words instead of forms.
        tags: parts of speech to keep; None for all.
        sample, seed: maximum number of usages per word and grouping, None for all; see `Samples`.
    Raises: DataError for no queries or two of the same name; for a text that cannot be read,
        without annotation if `lemma` or `tags` is given, or without any usage.
    """
    counts = Counter(query.name for query in queries)
    if not counts:
        raise DataError("the list of words is empty; expected at least one")
    name, times = counts.most_common(1)[0]
    if times > 1:
        raise DataError(f"{name!r} is in the list of words twice")

    names_of = matcher(queries, ignore_case)

    def matches(record: Record, path: str) -> Iterator[tuple[str, int]]:
        """Yield the name of the query and the position of each match in a sentence."""
        if record.words and record.lemmas is None and (lemma or tags is not None):
            raise DataError(
                f"{path}: contains no lemmas and parts of speech; --lemma and --tags require "
                "CoNLL-U (.conllu)"
            )
        words = record.lemmas if lemma and record.lemmas else record.words
        for position, word in enumerate(words):
            has_tag = tags is None or record.tags is None or record.tags[position] in tags
            if word and has_tag:
                yield from ((name, position) for name in names_of(word))

    samples = Samples(sample, seed)
    groupings = [Grouping(name, [text.path for text in texts[name]]) for name in texts]
    bar = Progress("finding", "sentences")
    for grouping in groupings:
        for corpus in texts[grouping.name]:
            for line, record in enumerate(bar.over(corpus), 1):
                grouping.sentences += bool(record.words)
                grouping.tokens += len(record.words)
                for word, position in matches(record, corpus.path):
                    usage = Usage(
                        word,
                        grouping.name,
                        identifier=f"{corpus.path}:{line}:{position}",
                        text=corpus.path,
                        line=line,
                        position=position,
                        words=record.words,
                        lemma=record.lemmas[position] if record.lemmas else None,
                        tag=record.tags[position] if record.tags else None,
                    )
                    samples.add(usage)
    found_usages = samples.result([query.name for query in queries], groupings)
    if not found_usages.usages:
        raise DataError(
            f"none of the {len(queries):,} words occurs in {', '.join(texts)}; compare their case "
            "and spelling with the text"
        )
    return found_usages


def open_texts(
    texts: Texts, of_model: Profile | None = None, **reading: Any
) -> dict[str, list[Corpus]]:
    """Open the files of groupings, in any input form, plain or compressed.

    Args:
        texts: for each grouping, a file or a pattern, or several of them. A file that several
            patterns match is read once.
        of_model: profile of the text of the model, which these are compared with.
        reading: `column`, `tokenize`, `on_bad_utf8` and `quoting` of `bilm.data.readers.Reading`.
    Raises: DataError if a file is missing or an argument does not apply to it.
    """
    signs = TextSigns(", ".join(texts), of_model=of_model)
    opened: dict[str, list[Corpus]] = {}
    for grouping, one_or_more in texts.items():
        patterns = [one_or_more] if isinstance(one_or_more, str | Path) else one_or_more
        paths: dict[str, str] = {}  # by file, which may have several paths
        for pattern in patterns:
            for path in matching_files(pattern):
                paths.setdefault(os.path.realpath(path), path)
        opened[grouping] = [Corpus(path, Reading(**reading), signs) for path in paths.values()]
    return opened
