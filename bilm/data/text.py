"""Text files -> lines and sentences: plain or gzip, UTF-8, streamed."""

from __future__ import annotations

import glob
import gzip
import io
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, NamedTuple

from bilm.errors import DataError
from bilm.files import expanded

STANDARD_INPUT = "/dev/stdin"
GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 1 << 24  # of an unpacked line; what has no line ends is no text
ON_BAD_UTF8 = ("error", "replace")


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


def resolve_shards(filepattern: str | os.PathLike) -> list[str]:
    """Return the files that a glob matches, sorted by name.

    Raises: DataError if there is none, or if one of them is a folder.
    """
    filepattern = expanded(filepattern)
    shards = sorted(glob.glob(filepattern))
    if not shards and os.path.exists(filepattern):
        shards = [filepattern]  # a name that only looks like a pattern: corpus[1].txt
    if not shards:
        raise DataError(f"{filepattern}: no file matches")
    for shard in shards:
        if os.path.isdir(shard):
            raise DataError(f"{filepattern}: matches the folder {shard}; give a pattern of files")
    return shards


def require_files(paths: Iterable[str | os.PathLike]) -> None:
    """Raise DataError for a pipe, which can be read once only: the second time it is empty."""
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise DataError(f"{path}: not a file; it is read more than once, so write it to one")


def read_lines(path: str | os.PathLike, on_bad_utf8: str = "error") -> Iterator[tuple[int, str]]:
    r"""Return the number, from 1, and the stripped text of each line.

    Only "\n" ends a line: U+2028, U+0085 and the like are characters of it. A file is gzip if it
    starts as one, whatever its name. A byte order mark at the start is dropped.

    Args:
        path: the file.
        on_bad_utf8: "error", or "replace" to have U+FFFD stand for bytes that are not UTF-8.
    Raises: DataError, naming the file and where it can the line, if the file cannot be read, is
        truncated, is not UTF-8 or has a line of more than `MAX_LINE_BYTES`.
    """
    return ((number, text) for number, _, _, text in read_placed_lines(path, 0, 0, on_bad_utf8))


def read_placed_lines(
    path: str | os.PathLike, offset: int = 0, number: int = 0, on_bad_utf8: str = "error"
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the number, the first byte, the byte after it and the stripped text of each line.

    Args:
        path: the file; bytes are those of its unpacked content.
        offset, number: where the last line that is left out ends, and its number.
        on_bad_utf8: see `read_lines`.
    Raises: DataError as `read_lines` does.
    """
    errors = _decoding(on_bad_utf8)
    for number, start, line in _raw_lines(path, offset, number):  # noqa: B020
        try:
            text = _decode(line, start, errors)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error) from error
        yield number, start, start + len(line), text


def read_lines_at(
    path: str | os.PathLike, offsets: Iterable[int], on_bad_utf8: str = "error"
) -> Iterator[str]:
    """Yield the stripped texts of the lines that start at these bytes, which must rise.

    Raises: DataError, naming the file, if it cannot be read there.
    """
    errors, offset = _decoding(on_bad_utf8), 0
    try:
        with _open(path) as file:
            for offset in offsets:
                file.seek(offset)
                yield _decode(file.readline(), offset, errors)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read at byte {offset}: {error}") from error


def read_texts(paths: Iterable[str | os.PathLike], on_bad_utf8: str = "error") -> Iterator[str]:
    """Return the stripped text of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does.
    """
    return (line for path in paths for _, line in read_lines(path, on_bad_utf8) if line)


def read_sentences(
    paths: Iterable[str | os.PathLike], on_bad_utf8: str = "error"
) -> Iterator[list[str]]:
    """Return the words of each line that is not blank, file after file.

    Raises: DataError as `read_lines` does.
    """
    return map(str.split, read_texts(paths, on_bad_utf8))


def count_tokens(
    paths: Sequence[str | os.PathLike],
    on_shard: Callable[[int, int], object] | None = None,
    on_bad_utf8: str = "error",
    max_word_bytes: int | None = None,
    on_words: Callable[[list[str]], object] | None = None,
    max_tokens: int | None = None,
) -> TextCounts:
    """Count the sentences and tokens of all files.

    Args:
        paths: the files.
        on_shard: called after each with how many are done and how many there are.
        on_bad_utf8: see `read_lines`.
        max_word_bytes: words of more bytes are counted as long.
        on_words: called with the words of each sentence.
        max_tokens: leave a file after the sentence with which so many are reached.
    Raises: DataError as `read_lines` does.
    """
    n_sentences = n_tokens = n_blank = n_replaced = n_long = 0
    errors = _decoding(on_bad_utf8)
    for n_done, path in enumerate(paths, start=1):
        enough = math.inf if max_tokens is None else n_tokens + max_tokens
        for number, start, line in _raw_lines(path):
            try:
                text = _decode(line, start, "strict")
            except UnicodeDecodeError as error:
                if errors == "strict":
                    raise _not_utf8(path, number, error) from error
                text = _decode(line, start, errors)
                n_replaced += 1
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
            on_shard(n_done, len(paths))
    return TextCounts(n_sentences, n_tokens, n_blank, n_replaced, n_long)


def _count_long(text: str, words: list[str], max_bytes: int) -> int:
    # The longest word settles most lines: a character has 4 bytes at most.
    if max(map(len, words)) * (1 if text.isascii() else 4) <= max_bytes:
        return 0
    return sum(len(word.encode()) > max_bytes for word in words)


def _raw_lines(
    path: str | os.PathLike, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, the first byte and the bytes of each line; see `read_placed_lines`."""
    end = offset
    try:
        with _open(path) as file:
            if offset:
                file.seek(offset)
            # Not by the file's own iterator, which reads on for a line's end as far as it must.
            for line in iter(partial(file.readline, MAX_LINE_BYTES + 1), b""):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected "
                        "text, a sentence a line"
                    )
                start, end = end, end + len(line)
                yield number, start, line
    except EOFError as error:
        raise DataError(f"{path}: truncated gzip file, after line {number}") from error
    except (OSError, zlib.error) as error:
        where = f" after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read{where}: {reason}") from error


def _decode(line: bytes, start: int, errors: str) -> str:
    return line.decode("utf-8" if start else "utf-8-sig", errors).strip()


def _decoding(on_bad_utf8: str) -> str:
    if on_bad_utf8 not in ON_BAD_UTF8:
        raise DataError(f"on_bad_utf8={on_bad_utf8}: expected one of {', '.join(ON_BAD_UTF8)}")
    return "strict" if on_bad_utf8 == "error" else "replace"


def _not_utf8(path: str | os.PathLike, number: int, error: UnicodeDecodeError) -> DataError:
    return DataError(
        f"{path}, line {number}: not UTF-8 ({error.reason}); convert it or, if it is a corpus, "
        "have such bytes replaced: --on_bad_utf8=replace"
    )


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open for bytes, unpacked. The outer buffer is in C, GzipFile's own lines are in Python."""
    # By its number standard input can be read where its name cannot: as a socket, or under sudo.
    own = os.fspath(path) != STANDARD_INPUT
    with open(path if own else 0, "rb", closefd=own) as file:
        if not own and file.seekable():
            file.seek(0)  # as by its name: whoever reads it twice gets the same
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield file
        else:
            with io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 17) as unpacked:
                yield unpacked
