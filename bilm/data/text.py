"""The lines of a text file or URL, UTF-8, plain or compressed, streamed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import BinaryIO, TextIO, cast

from bilm.data.compression import compressing, decompressing, ending_of
from bilm.errors import DataError
from bilm.support.files import replacing
from bilm.support.remote import reading, stat
from bilm.support.urls import is_url

STANDARD_INPUT = "/dev/stdin"
URL_BUFFER = 1 << 17
MAX_LINE_BYTES = 1 << 24  # uncompressed; a longer line suggests a binary file
# Encodings, with the residues mod 4 of the positions of NUL bytes: those that occur in any text of
# the encoding, and those that may occur.
UTF_16_AND_32: tuple[tuple[str, set[int], set[int]], ...] = (
    ("UTF-16-LE", set(), {1, 3}),
    ("UTF-16-BE", set(), {0, 2}),
    ("UTF-32-LE", {2, 3}, {1, 2, 3}),
    ("UTF-32-BE", {0, 1}, {0, 1, 2}),
)
MIN_NUL_SHARE = 0.05  # of the bytes of a line; less suggests damage
ON_BAD_UTF8 = ("error", "replace")


def require_files(paths: Iterable[str | os.PathLike]) -> None:
    """Raise DataError for a pipe, which can be read only once."""
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            raise DataError(f"{path}: must be a regular file: it is read more than once")


def read_lines(path: str | os.PathLike, errors: str = "strict") -> Iterator[tuple[int, str]]:
    r"""Yield the number, starting at 1, and the stripped text of each line.

    Only "\n" ends a line; U+2028, U+0085 and similar characters do not. The file is decompressed
    if its name ends with .gz, .bz2, .xz or .zst. A byte order mark at the start is skipped.

    Args:
        path: the file, or its URL.
        errors: "strict", or "replace" to decode invalid UTF-8 as U+FFFD.
    Raises: DataError, naming the file and, if known, the line, if the file cannot be read, is
        truncated, is not UTF-8, contains NUL or has a line longer than `MAX_LINE_BYTES`.
    """
    return ((number, text) for number, _, _, text in placed_lines(path, errors))


def placed_lines(
    path: str | os.PathLike, errors: str, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the number, the start and end byte positions, and the stripped text of each line.

    Byte positions refer to the uncompressed content.

    Args:
        path, errors: see `read_lines`.
        offset, number: byte position at which to start, and number of lines before it.
    Raises: DataError as `read_lines` does.
    """
    for number, start, line in raw_lines(path, offset, number):  # noqa: B020
        try:
            text = decoded(line, start, errors)
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error) from error
        yield number, start, start + len(line), text


def whole_lines(path: str | os.PathLike, errors: str) -> Iterator[str]:
    """Yield the text of each line unchanged, with surrounding whitespace and its line end.

    See `read_lines` for `errors` and the exceptions.
    """
    for number, start, line in raw_lines(path):
        try:
            yield line.decode("utf-8" if start else "utf-8-sig", errors)
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error) from error


def lines_at(path: str | os.PathLike, errors: str, offsets: Iterable[int]) -> Iterator[str]:
    """Yield the stripped text of the lines that start at these byte positions, in ascending order.

    Raises: DataError, naming the file, if it cannot be read at a position.
    """
    offset = 0
    try:
        with _open(path) as file:
            for offset in offsets:
                file.seek(offset)
                yield decoded(file.readline(), offset, errors)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read at byte {offset}: {error}") from error


def decoding(on_bad_utf8: str) -> str:
    """Return the argument `errors` of `bytes.decode` for a value of `on_bad_utf8`.

    Raises: DataError for another value.
    """
    if on_bad_utf8 not in ON_BAD_UTF8:
        raise DataError(f"on_bad_utf8={on_bad_utf8}: expected one of {', '.join(ON_BAD_UTF8)}")
    return "replace" if on_bad_utf8 == "replace" else "strict"


def raw_lines(
    path: str | os.PathLike, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, the start position and the bytes of each line; see `placed_lines`."""
    end = offset
    try:
        with _open(path) as file:
            if offset:
                file.seek(offset)
            # The file's own iterator would read a line of any length into memory.
            for line in iter(partial(file.readline, MAX_LINE_BYTES + 1), b""):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected "
                        "text with one sentence per line"
                    )
                if b"\0" in line:
                    raise _contains_nul(path, number, line, end)
                start, end = end, end + len(line)
                yield number, start, line
    except OSError as error:
        where = f" after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read{where}: {reason}") from error


def _contains_nul(path: str | os.PathLike, number: int, line: bytes, start: int) -> DataError:
    """Return the error for a line with NUL bytes, which starts at byte `start`."""
    places = [start + i for i, byte in enumerate(line[:1000]) if byte == 0]
    residues = {place % 4 for place in places}
    likely = "it is probably a binary file"
    if len(places) >= MIN_NUL_SHARE * len(line[:1000]):
        for encoding, least, most in UTF_16_AND_32:
            if least <= residues <= most:
                likely = f"it is probably {encoding}: iconv -f {encoding} -t UTF-8"
    return DataError(f"{path}, line {number}: contains NUL, but text must be UTF-8; {likely}")


def decoded(line: bytes, start: int, errors: str) -> str:
    """Return the stripped text of a line that starts at byte `start`; a byte order mark at byte
    0 is removed. Raises: UnicodeDecodeError."""
    return line.decode("utf-8" if start else "utf-8-sig", errors).strip()


def not_utf8(path: str | os.PathLike, number: int, error: UnicodeDecodeError) -> DataError:
    """Return the error for a line that is not UTF-8."""
    return DataError(
        f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8 or, if it "
        "is a corpus, replace such bytes with U+FFFD: --on_bad_utf8=replace"
    )


@contextmanager
def _open(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file or URL for reading bytes and decompress it."""
    with ExitStack() as stack:
        if is_url(path):
            raw = cast(io.RawIOBase, stack.enter_context(reading(path)))
            file: BinaryIO = io.BufferedReader(raw, URL_BUFFER)
        elif os.fspath(path) == STANDARD_INPUT:
            # By its descriptor: sockets, and standard input under sudo, cannot be opened by path.
            file = stack.enter_context(open(0, "rb", closefd=False))
            if file.seekable():
                file.seek(0)  # reading it again starts at the beginning, as for a named file
        else:
            file = stack.enter_context(open(path, "rb"))
        yield stack.enter_context(decompressing(path, file))


def plain_size(path: str | os.PathLike) -> int | None:
    """Return the size of a regular file or URL in bytes; None if it is compressed, or if the size
    is unknown. Raises: OSError, DataError."""
    if ending_of(path):
        return None
    if is_url(path):
        return stat(path).size
    return os.path.getsize(path) if os.path.isfile(path) else None


@contextmanager
def writing_text(path: str | os.PathLike) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing, compressed if its name ends with `.gz`, `.bz2`, `.xz` or
    `.zst`.

    The file is renamed into place when the block succeeds.

    Raises: OSError as `bilm.support.files.replacing` does.
    """
    with replacing(path) as temporary, ExitStack() as stack:
        file: BinaryIO = stack.enter_context(open(temporary, "wb"))
        if (packed := compressing(path, file)) is not None:
            file = stack.enter_context(packed)
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))
