"""The files of a text, and how they are read: as sentences, from any place on, counted."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from bilm.data.text import decoded, lines_at, not_utf8, placed_lines, raw_lines
from bilm.errors import DataError
from bilm.files import expanded

DECODING = {"error": "strict", "replace": "replace"}  # by `on_bad_utf8`
ON_BAD_UTF8 = tuple(DECODING)


class Shards(Sequence[str]):
    """The names of a text's files, in order, and what to do with bytes that are not UTF-8.

    Args:
        paths: the files, plain or gzip, one sentence a line.
        on_bad_utf8: "error", or "replace" to have U+FFFD stand for bytes that are not UTF-8.
        name: of the text, for messages; None for that of the first file.
        stride: `texts` and `sentences` return the first of each `stride` sentences.
    Raises: DataError for another `on_bad_utf8`.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike],
        on_bad_utf8: str = "error",
        name: str | None = None,
        stride: int = 1,
    ):
        if on_bad_utf8 not in DECODING:
            raise DataError(f"on_bad_utf8={on_bad_utf8}: expected one of {', '.join(ON_BAD_UTF8)}")
        self.paths, self.on_bad_utf8 = tuple(map(os.fspath, paths)), on_bad_utf8
        self.name = name or next(iter(self.paths), "no file")
        self.stride = stride

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index):
        return self.paths[index]

    def of(self, paths: Iterable[str | os.PathLike]) -> Shards:
        """Return other files that are read as these are."""
        return Shards(paths, self.on_bad_utf8)

    def thinned(self, stride: int) -> Shards:
        """Return the same files, of which `sentences` returns the first of each `stride`."""
        return Shards(self.paths, self.on_bad_utf8, self.name, stride)

    def lines(
        self, shard: int = 0, offset: int = 0, number: int = 0
    ) -> Iterator[tuple[int, int, int, str]]:
        """Return the lines of a file and their places: see `bilm.data.text.placed_lines`."""
        return placed_lines(self.paths[shard], DECODING[self.on_bad_utf8], offset, number)

    def lines_at(self, shard: int, offsets: Iterable[int]) -> Iterator[str]:
        """Return the lines of a file that start at these bytes: see `bilm.data.text.lines_at`."""
        return lines_at(self.paths[shard], DECODING[self.on_bad_utf8], offsets)

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
    """Return the files that a glob matches, sorted by name; `Shards` are returned as they are.

    Raises: DataError if there is none, or if one of them is a folder.
    """
    if isinstance(filepattern, Shards):
        return filepattern
    name, filepattern = os.fspath(filepattern), expanded(filepattern)
    paths = sorted(glob.glob(filepattern))
    if not paths and os.path.exists(filepattern):
        paths = [filepattern]  # a name that only looks like a pattern: corpus[1].txt
    if not paths:
        raise DataError(f"{filepattern}: no file matches")
    for path in paths:
        if os.path.isdir(path):
            raise DataError(f"{filepattern}: matches the folder {path}; give a pattern of files")
    return Shards(paths, on_bad_utf8, name)


def require_files(paths: Iterable[str | os.PathLike]) -> None:
    """Raise DataError for a pipe, which can be read once only: the second time it is empty."""
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise DataError(f"{path}: not a file; it is read more than once, so write it to one")


class TextCounts(NamedTuple):
    """How much text there is, and what in it is not as it should be.

    Fields:
        n_sentences, n_tokens: lines that are not blank, and their words.
        n_blank: lines that are blank, which are skipped.
        n_replaced: lines in which U+FFFD stands for bytes that are not UTF-8.
        n_long: words, of the tokens, that are over the limit that was asked about.
    """

    n_sentences: int
    n_tokens: int
    n_blank: int = 0
    n_replaced: int = 0
    n_long: int = 0

    @property
    def n_predictions(self) -> int:
        """What one direction predicts: every token, and the end of every sentence."""
        return self.n_tokens + self.n_sentences


def count_tokens(
    shards: Shards,
    on_shard: Callable[[int, int], object] | None = None,
    max_word_bytes: int | None = None,
    on_words: Callable[[list[str]], object] | None = None,
    max_tokens: int | None = None,
) -> TextCounts:
    """Count the sentences and tokens of all files.

    Args:
        shards: the files.
        on_shard: called after each with how many are done and how many there are.
        max_word_bytes: words of more bytes are counted as long.
        on_words: called with the words of each sentence.
        max_tokens: leave a file after the sentence with which so many are reached.
    Raises: DataError as `bilm.data.text.read_lines` does.
    """
    n_sentences = n_tokens = n_blank = n_replaced = n_long = 0
    for n_done, path in enumerate(shards, start=1):
        enough = math.inf if max_tokens is None else n_tokens + max_tokens
        for text, is_replaced in _texts(path, shards.on_bad_utf8):
            n_replaced += is_replaced
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
        if on_shard is not None:
            on_shard(n_done, len(shards))
    return TextCounts(n_sentences, n_tokens, n_blank, n_replaced, n_long)


def _texts(path: str, on_bad_utf8: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of each line, blank ones too, and whether bytes in it were replaced."""
    for number, start, line in raw_lines(path):
        try:
            yield decoded(line, start, "strict"), False
        except UnicodeDecodeError as error:
            if on_bad_utf8 == "error":
                raise not_utf8(path, number, error) from error
            yield decoded(line, start, DECODING[on_bad_utf8]), True


def _count_long(text: str, words: list[str], max_bytes: int) -> int:
    # The longest word settles most lines: a character has 4 bytes at most.
    if max(map(len, words)) * (1 if text.isascii() else 4) <= max_bytes:
        return 0
    return sum(len(word.encode()) > max_bytes for word in words)
