"""The words whose usages are collected: lists of forms and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bilm.data.text import read_lines
from bilm.errors import DataError

MAX_FORMS = 1_000_000  # of a text, whose queries are kept in memory
NAMED = re.compile(r"(?P<name>\S+):\s+(?P<forms>\S.*)")


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
    forms, patterns = [], []
    for part in parts:
        if len(part) > 2 and part[0] == part[-1] == "/":
            try:
                patterns.append(re.compile(part[1:-1]))
            except re.error as error:
                raise DataError(
                    f"{where}: {part}: {error}; expected a regular expression"
                ) from None
        else:
            forms.append(part)
    return Query(named["name"] if named else text, frozenset(forms), tuple(patterns))


def read_queries(path: str) -> list[Query]:
    """Read a list of words, one entry per line: see `parse_query`. Blank lines are skipped.

    Raises: DataError, naming file and line.
    """
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    return [parse_query(line, f"{path}, line {number}") for number, line in lines]


class Matcher(dict[str, tuple[int, ...]]):
    """Maps a form to the numbers of the queries that match it; the entries of `MAX_FORMS` forms are
    computed once.

    Args:
        queries: the words to look for.
        ignore_case: whether case is ignored.
    Raises: DataError if there are no queries, or two of the same name.
    """

    def __init__(self, queries: Sequence[Query], ignore_case: bool = False):
        super().__init__()
        names = [query.name for query in queries]
        if not names:
            raise DataError("the list of words is empty; expected at least one")
        twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
        if twice is not None:
            raise DataError(f"{twice!r} is in the list of words twice")
        self._fold = str.casefold if ignore_case else str
        self._forms: dict[str, list[int]] = {}
        for number, query in enumerate(queries):
            for form in query.forms:
                self._forms.setdefault(self._fold(form), []).append(number)
        flags = re.IGNORECASE if ignore_case else 0
        self._patterns = [
            (number, re.compile(pattern.pattern, pattern.flags | flags))
            for number, query in enumerate(queries)
            for pattern in query.patterns
        ]

    def __missing__(self, form: str) -> tuple[int, ...]:
        found = set(self._forms.get(self._fold(form), ()))
        found.update(number for number, pattern in self._patterns if pattern.fullmatch(form))
        numbers = tuple(sorted(found))
        if len(self) < MAX_FORMS:
            self[form] = numbers
        return numbers

    def matches(self, words: Iterable[str | None]) -> list[tuple[int, int]]:
        """Return the position and the query's number of each match, in order."""
        return [(k, q) for k, word in enumerate(words) if word is not None for q in self[word]]
