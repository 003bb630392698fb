"""Finds the files of a text, reads their sentences from any position and counts them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from bilm.data.readers import require_text
from bilm.data.text import decoding, lines_at, matching_files, placed_lines
from bilm.support.progress import progress
from bilm.support.urls import is_url

MAX_LOOKED_AT = 8  # URLs of a text whose first lines are checked


class Shards:
    """The names of a text's files, in order, and how to treat bytes that are not UTF-8.

    Args:
        paths: the files or URLs, plain or compressed, one sentence per line.
        on_bad_utf8: "error", or "replace" to decode invalid UTF-8 as U+FFFD.
        name: name of the text, for messages; None for the name of the first file.
        stride: `texts` and `sentences` return every `stride`-th sentence, starting with the first.
    Raises: DataError for another value of `on_bad_utf8`.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike],
        on_bad_utf8: str = "error",
        name: str | None = None,
        stride: int = 1,
    ):
        self.paths = tuple(os.fspath(path) for path in paths)
        self.on_bad_utf8, self.errors = on_bad_utf8, decoding(on_bad_utf8)
        self.name = name or next(iter(self.paths), "no file")
        self.stride = stride

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> str:
        return self.paths[index]

    def thinned(self, stride: int) -> Shards:
        """Return `Shards` of the same files with another `stride`."""
        return Shards(self.paths, self.on_bad_utf8, self.name, stride)

    def lines(
        self, shard: int = 0, offset: int = 0, number: int = 0
    ) -> Iterator[tuple[int, int, int, str]]:
        """Return the lines of a file with their positions: see `bilm.data.text.placed_lines`."""
        return placed_lines(self.paths[shard], self.errors, offset, number)

    def lines_at(self, shard: int, offsets: Iterable[int]) -> Iterator[str]:
        """Return the lines that start at these byte positions: see `bilm.data.text.lines_at`."""
        return lines_at(self.paths[shard], self.errors, offsets)

    def texts(self) -> Iterator[str]:
        """Return the stripped text of each line that is not blank, file after file.

        Raises: DataError as `bilm.data.text.read_lines` does.
        """
        texts = (text for i in range(len(self)) for *_, text in self.lines(i) if text)
        return islice(texts, 0, None, self.stride)

    def sentences(self) -> Iterator[list[str]]:
        """Return the words of each line that is not blank, file after file.

        Raises: DataError as `bilm.data.text.read_lines` does.
        """
        return map(str.split, self.texts())


def resolve_shards(filepattern: str | os.PathLike | Shards, on_bad_utf8: str = "error") -> Shards:
    """Return the files or URLs that a glob matches, sorted by name; `Shards` are returned
    unchanged. The first lines of at most `MAX_LOOKED_AT` URLs are checked, because each requires a
    request.

    Raises: DataError if no file matches, if a match is a folder, or if a file's ending belongs to a
        format other than text with one sentence per line.
    """
    if isinstance(filepattern, Shards):
        return filepattern
    paths = matching_files(filepattern)
    for number, path in enumerate(paths):
        require_text(path, reads=number < MAX_LOOKED_AT or not is_url(path))
    return Shards(paths, on_bad_utf8, os.fspath(filepattern))


class TextCounts(NamedTuple):
    """Counts of a text.

    Fields:
        n_sentences, n_tokens: lines that are not blank, and their words.
        n_blank: blank lines, which are skipped.
        n_replaced: lines that contain U+FFFD, where it replaces invalid UTF-8.
        n_long: words longer than the `max_word_bytes` of `count_tokens`.
    """

    n_sentences: int
    n_tokens: int
    n_blank: int = 0
    n_replaced: int = 0
    n_long: int = 0

    @property
    def n_predictions(self) -> int:
        """The number of predictions of one direction: one per token and one per sentence end."""
        return self.n_tokens + self.n_sentences


def count_tokens(
    shards: Shards,
    max_word_bytes: int | None = None,
    on_words: Callable[[list[str]], object] | None = None,
    max_tokens: int | None = None,
) -> TextCounts:
    """Count the sentences and tokens of all files.

    Args:
        shards: the files.
        max_word_bytes: words with more bytes are counted in `n_long`.
        on_words: called with the words of each sentence.
        max_tokens: stop reading a file after this number of tokens, at the end of a sentence.
    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    n_sentences = n_tokens = n_blank = n_replaced = n_long = 0
    with progress("counting", "files", len(shards)) as shown:
        for path in shown.over(shards):
            enough = math.inf if max_tokens is None else n_tokens + max_tokens
            for *_, text in placed_lines(path, shards.errors):
                n_replaced += shards.errors == "replace" and "\ufffd" in text
                words = text.split()
                if not words:
                    n_blank += 1
                    continue
                n_sentences += 1
                n_tokens += len(words)
                if max_word_bytes is not None:
                    n_long += _count_long(text, words, max_word_bytes)
                if on_words is not None:
                    on_words(words)
                if n_tokens >= enough:
                    break
    return TextCounts(n_sentences, n_tokens, n_blank, n_replaced, n_long)


def _count_long(text: str, words: list[str], max_bytes: int) -> int:
    # A quick test that suffices for most lines: a character has at most 4 bytes.
    if max(map(len, words)) * (1 if text.isascii() else 4) <= max_bytes:
        return 0
    return sum(len(word.encode()) > max_bytes for word in words)
