"""One text file -> its lines: plain or gzip, UTF-8, streamed."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from bilm.errors import DataError

STANDARD_INPUT = "/dev/stdin"
GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 1 << 24  # of an unpacked line; what has no line ends is no text


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    r"""Return the number, from 1, and the stripped text of each line.

    Only "\n" ends a line: U+2028, U+0085 and the like are characters of it. A file is gzip if it
    starts as one, whatever its name. A byte order mark at the start is dropped.

    Raises: DataError, naming the file and where it can the line, if the file cannot be read, is
        truncated, is not UTF-8 or has a line of more than `MAX_LINE_BYTES`.
    """
    return ((number, text) for number, _, _, text in placed_lines(path, "strict"))


def placed_lines(
    path: str | os.PathLike, errors: str, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the number, the first byte, the byte after it and the stripped text of each line.

    Args:
        path: the file; bytes are those of its unpacked content.
        errors: "strict", or "replace" to have U+FFFD stand for bytes that are not UTF-8.
        offset, number: where the last line that is left out ends, and its number.
    Raises: DataError as `read_lines` does.
    """
    for number, start, line in raw_lines(path, offset, number):  # noqa: B020
        try:
            text = decoded(line, start, errors)
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error) from error
        yield number, start, start + len(line), text


def whole_lines(path: str | os.PathLike, errors: str) -> Iterator[str]:
    """Yield the text of each line as it is, blanks and the line's end included.

    `errors` is that of `placed_lines`. Raises: DataError as `read_lines` does.
    """
    for number, start, line in raw_lines(path):
        try:
            yield line.decode("utf-8" if start else "utf-8-sig", errors)
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error) from error


def lines_at(path: str | os.PathLike, errors: str, offsets: Iterable[int]) -> Iterator[str]:
    """Yield the stripped texts of the lines that start at these bytes, which must rise.

    Raises: DataError, naming the file, if it cannot be read there.
    """
    offset = 0
    try:
        with _open(path) as file:
            for offset in offsets:
                file.seek(offset)
                yield decoded(file.readline(), offset, errors)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read at byte {offset}: {error}") from error


def raw_lines(
    path: str | os.PathLike, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, the first byte and the bytes of each line; see `placed_lines`."""
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


def decoded(line: bytes, start: int, errors: str) -> str:
    """Return the stripped text of a line that starts at a byte. Raises: UnicodeDecodeError."""
    return line.decode("utf-8" if start else "utf-8-sig", errors).strip()


def not_utf8(path: str | os.PathLike, number: int, error: UnicodeDecodeError) -> DataError:
    """Return the error for a line that is not UTF-8."""
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
