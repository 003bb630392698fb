"""Text -> a vocabulary sorted by descending frequency, in bounded memory."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, NamedTuple

from absl import logging

from bilm.data.shards import Shards, resolve_shards
from bilm.data.text import plain_size
from bilm.data.vocabulary import MARKS, NOT_A_WORD
from bilm.errors import DataError
from bilm.support.files import expanded, replacing, scratch
from bilm.support.model_files import protect
from bilm.support.progress import progress

WORDS_IN_MEMORY = 2_000_000  # about 300 MB
MAX_RUNS = 64  # sorted files that are open and merged at a time

NOT_COUNTED = frozenset([*MARKS, NOT_A_WORD])
WordCount = tuple[str, int]


class VocabularyCounts(NamedTuple):
    """Counts of the text and of the vocabulary built from it. Tokens do not include marks."""

    n_sentences: int
    n_tokens: int
    n_distinct: int
    n_marks: int  # marks in the text, which are not counted as words
    n_words: int  # words in the vocabulary, without marks
    n_covered: int  # tokens of the text that are in the vocabulary


def build_vocabulary(
    filepattern: str | os.PathLike,
    outfile: str | os.PathLike,
    counts_file: str | os.PathLike | None = None,
    min_count: int = 1,
    max_size: int | None = None,
    on_bad_utf8: str = "error",
    words_in_memory: int = WORDS_IN_MEMORY,
) -> VocabularyCounts:
    """Write a vocabulary: the three marks, then words by descending frequency, ties by the word.

    Both files are renamed into place when they are complete. If there are more than
    `words_in_memory` words, sorted counts are written to a folder beside `outfile` and merged; see
    `bilm.support.files.scratch`.

    Args:
        filepattern: glob of the shards, plain or compressed, one tokenized sentence per line.
        outfile: output, one word per line.
        counts_file: output with a word, a tab and its count per line, in the same order and without
            the marks.
        min_count: skip words that occur less often.
        max_size: maximum number of lines of `outfile`, including the marks.
        on_bad_utf8: see `bilm.data.shards.Shards`.
        words_in_memory: maximum number of distinct words that are counted or sorted in memory.
    Raises: DataError if a shard cannot be read or is also an output, if an output is a file of a
        stored model, or if no word is left; OSError if a file cannot be written.
    """
    least = {"min_count": (min_count, 1), "words_in_memory": (words_in_memory, 1)}
    if max_size is not None:
        least["max_size"] = (max_size, len(MARKS) + 1)  # the marks and a word
    for name, (found, expected) in least.items():
        if found < expected:
            raise DataError(f"{name}: found {found}, expected at least {expected}")
    outputs = [expanded(path) for path in (outfile, counts_file) if path is not None]
    shards = resolve_shards(filepattern, on_bad_utf8)
    taken = [*shards]
    for output in outputs:
        if os.path.isdir(output):
            raise DataError(f"{output}: a folder, expected the name of a file")
        protect(output, *taken)
        taken.append(output)
    with scratch(outfile) as folder:
        counter = _Counter(folder, words_in_memory)
        counter.count(shards)
        frequent = (pair for pair in counter.merged() if pair[1] >= min_count)
        ordered = _by_frequency(frequent, folder, words_in_memory)
        room = None if max_size is None else max_size - len(MARKS)
        n_words, n_covered = _write(ordered, room, outputs, os.fspath(filepattern))
    return VocabularyCounts(
        counter.n_sentences,
        counter.n_tokens - counter.n_marks,
        counter.n_distinct,
        counter.n_marks,
        n_words,
        n_covered,
    )


class _Counter:
    """Counts words, and writes sorted counts to files when there are too many for the memory."""

    def __init__(self, folder: Path, words_in_memory: int):
        self.runs, self.words_in_memory = _Runs(folder / "words", combine=_summed), words_in_memory
        self.counts: Counter[str] = Counter()
        self.n_sentences = self.n_tokens = self.n_marks = self.n_distinct = 0

    def count(self, shards: Shards) -> None:
        """Count the words of all files, and log how much was read."""
        sizes = [plain_size(path) for path in shards]
        n_bytes = None if None in sizes else sum(filter(None, sizes))
        with progress("counting words", "bytes", n_bytes) as shown:
            for shard in range(len(shards)):
                for _, start, end, text in shards.lines(shard):
                    if words := text.split():
                        self.counts.update(words)
                        self.n_sentences += 1
                        self.n_tokens += len(words)
                        if len(self.counts) > self.words_in_memory:
                            self._spill()
                    shown.add(end - start)
        logging.info(
            "%d shards read: %s sentences, %s tokens",
            len(shards), f"{self.n_sentences:,}", f"{self.n_tokens:,}",
        )  # fmt: skip

    def merged(self) -> Iterator[WordCount]:
        """Yield every distinct word with its count, sorted by the word."""
        if self.runs.paths:
            self._spill()
        for pair in self.runs.merged() if self.runs.paths else self._sorted():
            self.n_distinct += 1
            yield pair

    def _sorted(self) -> list[WordCount]:
        self.n_marks += sum(self.counts.pop(name, 0) for name in NOT_COUNTED)
        return sorted(self.counts.items())

    def _spill(self) -> None:
        logging.info("%d distinct words: writing sorted counts to disk", len(self.counts))
        self.runs.add(self._sorted())
        self.counts.clear()


class _Runs:
    """Sorted files with a word, a tab and a number per line, and their merge.

    Words contain neither tabs nor line feeds. The files are text, because reading a pickle could
    execute code.

    Args:
        prefix: start of the names of the files.
        key: function that returns the sort key of a pair; None sorts by the pair.
        combine: applied to the merged pairs.
    """

    def __init__(
        self,
        prefix: Path,
        key: Callable[[WordCount], tuple] | None = None,
        combine: Callable[[Iterable[WordCount]], Iterator[WordCount]] = iter,
    ):
        self.prefix, self.key, self.combine = prefix, key, combine
        self.paths: list[Path] = []
        self._numbers = count()

    def add(self, pairs: Iterable[WordCount]) -> None:
        """Write a sorted file; when there are `MAX_RUNS` files, merge them into one first."""
        if len(self.paths) == MAX_RUNS:
            runs, whole = self.paths, self._store(self.merged())
            for path in runs:
                path.unlink()
            self.paths = [whole]
        self.paths.append(self._store(pairs))

    def merged(self) -> Iterator[WordCount]:
        """Yield the pairs of all files in order."""
        with ExitStack() as stack:
            files = [stack.enter_context(_opened(path, "r")) for path in self.paths]
            yield from self.combine(heapq.merge(*map(_pairs, files), key=self.key))

    def _store(self, pairs: Iterable[WordCount]) -> Path:
        path = self.prefix.with_name(f"{self.prefix.name}.{next(self._numbers)}")
        with _opened(path, "w") as file:
            file.writelines(f"{word}\t{number}\n" for word, number in pairs)
        return path


def _opened(path: Path, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8", newline="\n", buffering=1 << 17)


def _pairs(file: Iterable[str]) -> Iterator[WordCount]:
    for line in file:
        word, number = line.split("\t")
        yield word, int(number)


def _summed(pairs: Iterable[WordCount]) -> Iterator[WordCount]:
    """Sum the counts of equal words, which are adjacent."""
    for word, group in groupby(pairs, key=itemgetter(0)):
        yield word, sum(number for _, number in group)


def _rank(pair: WordCount) -> tuple[int, str]:
    word, number = pair
    return -number, word


def _by_frequency(
    counts: Iterable[WordCount], folder: Path, words_in_memory: int
) -> Iterator[WordCount]:
    """Sort by descending count, ties by the word, with files if there are too many words."""
    runs, waiting = _Runs(folder / "ranks", key=_rank), []
    for pair in counts:
        waiting.append(pair)
        if len(waiting) > words_in_memory:
            runs.add(sorted(waiting, key=_rank))
            waiting.clear()
    waiting.sort(key=_rank)
    if not runs.paths:
        return iter(waiting)
    runs.add(waiting)
    return runs.merged()


def _write(
    ordered: Iterator[WordCount], room: int | None, outputs: Sequence[str], source: str
) -> tuple[int, int]:
    """Write the files. Returns: the numbers of words and of the tokens that they cover."""
    n_words = n_covered = 0
    with ExitStack() as stack:
        temporary = [stack.enter_context(replacing(path)) for path in outputs]
        with ExitStack() as opened:
            vocabulary, *counts = [opened.enter_context(_opened(p, "w")) for p in temporary]
            vocabulary.writelines(f"{mark}\n" for mark in MARKS)
            for word, number in ordered:
                if n_words == room:
                    break
                vocabulary.write(f"{word}\n")
                for file in counts:
                    file.write(f"{word}\t{number}\n")
                n_words += 1
                n_covered += number
        if not n_words:
            raise DataError(
                f"{source}: no word is left: every line is blank or min_count is too high"
            )
    return n_words, n_covered
