"""Text files -> lines and sentences: plain or gzip, UTF-8, streamed."""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import BinaryIO, NamedTuple

import numpy as np
from absl import logging

from bilm.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 64 << 20  # a file without line feeds must not be read into memory whole
BAD_UTF8 = ("error", "replace")  # what to do about bytes that are not UTF-8


class TextCounts(NamedTuple):
    """How much text there is."""

    n_sentences: int
    n_tokens: int

    @property
    def n_predictions(self) -> int:
        """What one direction predicts: every token, and the end of every sentence."""
        return self.n_tokens + self.n_sentences


def resolve_shards(filepattern: str | os.PathLike) -> list[str]:
    """Give the files that a glob matches, sorted by name.

    Raises: DataError if there is none, or if one of them is a folder.
    """
    filepattern = os.fspath(filepattern)
    shards = sorted(glob.glob(filepattern))
    if not shards and os.path.exists(filepattern):
        shards = [filepattern]  # a name that only looks like a pattern: corpus[1].txt
    if not shards:
        raise DataError(f"{filepattern}: no file matches")
    for shard in shards:
        if os.path.isdir(shard):
            raise DataError(f"{filepattern}: matches the folder {shard}; give a pattern of files")
    return shards


def read_lines(path: str | os.PathLike, on_bad_utf8: str = "error") -> Iterator[tuple[int, str]]:
    r"""Give the number, from 1, and the stripped text of each line.

    Only "\n" ends a line: U+2028, U+0085, NUL and the like are characters of it. A file is gzip if
    it starts as one, whatever its name. A byte order mark at the start is dropped.

    Args:
        path: the file.
        on_bad_utf8: "error", or "replace" to put U+FFFD where bytes are not UTF-8; the first such
            line of a file is then named on the log, and how many there were.
    Raises: DataError, naming the file and where it can the line, if the file cannot be read, is
        truncated, is not UTF-8 or has a line of over `MAX_LINE_BYTES`.
    """
    if on_bad_utf8 not in BAD_UTF8:
        raise DataError(f"on_bad_utf8: found {on_bad_utf8!r}, expected one of {BAD_UTF8}")
    number = n_replaced = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
                if len(line) == MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected a "
                        "sentence or a word a line"
                    )
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                try:
                    text = line.decode(encoding)
                except UnicodeDecodeError as error:
                    if on_bad_utf8 == "error":
                        raise DataError(
                            f"{path}, line {number}: not UTF-8 ({error.reason})"
                        ) from error
                    text = line.decode(encoding, "replace")
                    n_replaced += 1
                    if n_replaced == 1:
                        logging.warning("%s, line %d: not UTF-8, replaced by U+FFFD", path, number)
                yield number, text.strip()
        if n_replaced > 1:
            logging.warning("%s: %d lines were not UTF-8", path, n_replaced)
    except EOFError as error:
        raise DataError(f"{path}: truncated gzip file, after line {number}") from error
    except (OSError, zlib.error) as error:
        where = f" after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read{where}: {reason}") from error


def read_texts(paths: Iterable[str | os.PathLike], on_bad_utf8: str = "error") -> Iterator[str]:
    """Give the stripped text of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does, whose `on_bad_utf8` this is.
    """
    return (line for path in paths for _, line in read_lines(path, on_bad_utf8) if line)


def read_sentences(
    paths: Iterable[str | os.PathLike], on_bad_utf8: str = "error"
) -> Iterator[list[str]]:
    """Give the words of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does, whose `on_bad_utf8` this is.
    """
    return map(str.split, read_texts(paths, on_bad_utf8))


def read_epoch(
    paths: Sequence[str | os.PathLike],
    buffer_size: int,
    rng: np.random.Generator,
    on_bad_utf8: str = "error",
) -> Iterator[str]:
    """Give the texts of all files once, in an order that chance draws and in bounded memory.

    Args:
        paths: the files, which are permuted.
        buffer_size: how many lines wait in memory to be drawn; 0 leaves everything in order.
        rng: draws.
        on_bad_utf8: see `read_lines`.
    Raises: DataError as `read_lines` does.
    """
    if not buffer_size:
        yield from read_texts(paths, on_bad_utf8)
        return
    texts = read_texts((paths[i] for i in rng.permutation(len(paths))), on_bad_utf8)
    buffer = list(islice(texts, buffer_size))
    for text in texts:
        i = rng.integers(buffer_size)
        yield buffer[i]
        buffer[i] = text
    yield from (buffer[i] for i in rng.permutation(len(buffer)))


def count_tokens(
    paths: Sequence[str | os.PathLike],
    on_shard: Callable[[int, int], object] | None = None,
    on_bad_utf8: str = "error",
) -> TextCounts:
    """Count the sentences and tokens of all files.

    Args:
        paths: the files.
        on_shard: called after each with how many are done and how many there are.
        on_bad_utf8: see `read_lines`.
    Raises: DataError as `read_lines` does.
    """
    n_sentences = n_tokens = 0
    for n_done, path in enumerate(paths, start=1):
        for words in read_sentences([path], on_bad_utf8):
            n_sentences += 1
            n_tokens += len(words)
        if on_shard is not None:
            on_shard(n_done, len(paths))
    return TextCounts(n_sentences, n_tokens)


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open for bytes, unpacked. The outer buffer is in C, GzipFile's own lines are in Python."""
    with open(path, "rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
        else:
            with io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 17) as unpacked:
                yield unpacked
