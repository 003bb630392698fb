"""Text files -> lines and sentences: plain or gzip, UTF-8, streamed."""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from bilm.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


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


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    r"""Give the number, from 1, and the stripped text of each line.

    Only "\n" ends a line: U+2028, U+0085 and the like are characters of it. A file is gzip if it
    starts as one, whatever its name. A byte order mark at the start is dropped.

    Raises: DataError, naming the file and where it can the line, if the file cannot be read, is
        truncated or is not UTF-8.
    """
    return ((number, text) for number, _, _, text in read_placed_lines(path))


def read_placed_lines(
    path: str | os.PathLike, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, int, str]]:
    """Give the number, the first byte, the byte after it and the stripped text of each line.

    Args:
        path: the file; bytes are those of its unpacked content.
        offset, number: where the last line that is left out ends, and its number.
    Raises: DataError as `read_lines` does.
    """
    end = offset
    try:
        with _open(path) as file:
            if offset:
                file.seek(offset)
            for line in file:
                number += 1
                start, end = end, end + len(line)
                yield number, start, end, _decode(line, start)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
    except EOFError as error:
        raise DataError(f"{path}: truncated gzip file, after line {number}") from error
    except (OSError, zlib.error) as error:
        where = f" after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read{where}: {reason}") from error


def read_lines_at(path: str | os.PathLike, offsets: Iterable[int]) -> Iterator[str]:
    """Give the stripped texts of the lines that start at these bytes, which must rise.

    Raises: DataError, naming the file, if it cannot be read there.
    """
    try:
        with _open(path) as file:
            for offset in offsets:
                file.seek(offset)
                yield _decode(file.readline(), offset)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read at byte {offset}: {error}") from error


def read_texts(paths: Iterable[str | os.PathLike]) -> Iterator[str]:
    """Give the stripped text of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does.
    """
    return (line for path in paths for _, line in read_lines(path) if line)


def read_sentences(paths: Iterable[str | os.PathLike]) -> Iterator[list[str]]:
    """Give the words of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does.
    """
    return map(str.split, read_texts(paths))


def count_tokens(
    paths: Sequence[str | os.PathLike], on_shard: Callable[[int, int], object] | None = None
) -> TextCounts:
    """Count the sentences and tokens of all files.

    Args:
        paths: the files.
        on_shard: called after each with how many are done and how many there are.
    Raises: DataError as `read_lines` does.
    """
    n_sentences = n_tokens = 0
    for n_done, path in enumerate(paths, start=1):
        for words in read_sentences([path]):
            n_sentences += 1
            n_tokens += len(words)
        if on_shard is not None:
            on_shard(n_done, len(paths))
    return TextCounts(n_sentences, n_tokens)


def _decode(line: bytes, start: int) -> str:
    return line.decode("utf-8" if start else "utf-8-sig").strip()


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open for bytes, unpacked. The outer buffer is in C, GzipFile's own lines are in Python."""
    with open(path, "rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
        else:
            with io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 17) as unpacked:
                yield unpacked
