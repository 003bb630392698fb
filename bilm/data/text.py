"""The lines of a text file or URL, UTF-8, plain or compressed, streamed."""

import bz2
import glob
import gzip
import io
import lzma
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, BinaryIO, TextIO, cast

from bilm.errors import BilmError, DataError
from bilm.support.files import replacing
from bilm.support.imports import optional
from bilm.support.remote import matching, reading
from bilm.support.urls import PathLike, is_url, name_of

STANDARD_INPUT = "/dev/stdin"
READ_BUFFER = 1 << 17  # bytes of a URL or a compressed file
MAX_LINE_BYTES = 1 << 24  # uncompressed; a longer line suggests a binary file
ENDINGS = (".gz", ".bz2", ".xz", ".zst")  # of compressed files
ON_BAD_UTF8 = {"error": "strict", "replace": "replace"}  # arguments `errors` of `bytes.decode`


def matching_files(filepattern: PathLike) -> list[str]:
    """Return the files or URLs that a glob matches, sorted by name. Raises: DataError if none, or
    if it finds one of them plain and compressed."""
    pattern = os.path.expanduser(os.fspath(filepattern))
    if is_url(pattern):
        paths = matching(pattern)
    elif os.path.exists(pattern):  # it may contain pattern characters, such as corpus[1].txt
        paths = [pattern]
    else:
        paths = sorted(glob.glob(pattern, recursive=True))
    if not paths:
        raise DataError(f"{pattern}: no file matches this name or pattern")
    ((name, n),) = Counter(path.removesuffix(ending_of(path)) for path in paths).most_common(1)
    if n > 1:
        raise DataError(
            f"{pattern}: matches {name} {n} times, plain or compressed; use a pattern that matches "
            "it once"
        )
    return paths


def input_files(filepattern: PathLike) -> list[str]:
    """Return `matching_files`. Raises: DataError also for a pipe, which can be read only once."""
    paths = matching_files(filepattern)
    for problem in filter(None, map(problem_of_pipe, paths)):
        raise DataError(problem)
    return paths


def problem_of_pipe(path: str) -> str | None:
    """Return why a text cannot be read more than once, if it is a pipe."""
    if not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path):
        return None
    name = "standard input" if path == STANDARD_INPUT else path
    problem = "not a regular file, but the text is read more than once; write it to a file first"
    return f"{name}: {problem}"


def read_lines(path: PathLike, on_bad_utf8: str = "error") -> Iterator[tuple[int, str]]:
    r"""Yield the number, starting at 1, and the stripped text of each line.

    Only "\n" ends a line; U+2028, U+0085 and similar characters do not. The file is decompressed
    if its name ends with one of `ENDINGS`. A byte order mark at the start is skipped.

    Args:
        on_bad_utf8: "error", or "replace" to decode invalid UTF-8 as U+FFFD.
    Raises: DataError, naming the file and, if known, the line, if it cannot be read, is not UTF-8
        or has a line longer than `MAX_LINE_BYTES`.
    """
    return ((number, text.strip()) for number, _, _, text in placed_lines(path, on_bad_utf8))


def placed_lines(
    path: PathLike, on_bad_utf8: str, offset: int = 0, number: int = 0
) -> Iterator[tuple[int, int, int, str]]:
    """Yield the number, the start and end byte in the uncompressed content, and the text with its
    whitespace of each line: see `read_lines`. It starts at byte `offset`, after `number` lines."""
    end = offset
    try:
        with opened(path) as file:
            if offset:
                file.seek(offset)
            # The file's own iterator would read a line of any length into memory.
            for line in iter(partial(file.readline, MAX_LINE_BYTES + 1), b""):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; expected "
                        "text with one sentence per line, and lines that end with \\n"
                    )
                if b"\0" in line:
                    raise DataError(
                        f"{path}, line {number}: contains NUL, but text must be UTF-8; the file is "
                        "probably UTF-16, UTF-32 or no text"
                    )
                start = end
                end += len(line)
                yield number, start, end, _decoded(line, start, on_bad_utf8)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8 or, if "
            "it is a corpus, replace such bytes with U+FFFD: --on_bad_utf8=replace"
        ) from error
    except OSError as error:
        where = f" after line {number}" if number else ""
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read{where}: {reason}") from error


def lines_at(path: PathLike, on_bad_utf8: str, offsets: Iterable[int]) -> Iterator[str]:
    """Yield the stripped lines that start at these ascending byte positions. Raises: DataError."""
    offset = 0
    try:
        with opened(path) as file:
            for offset in offsets:
                file.seek(offset)
                yield _decoded(file.readline(), offset, on_bad_utf8).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read at byte {offset}: {error}") from error


def _decoded(line: bytes, start: int, on_bad_utf8: str) -> str:
    """Return the text of a line, without the byte order mark that may be at byte 0."""
    return line.decode("utf-8" if start else "utf-8-sig", ON_BAD_UTF8[on_bad_utf8])


@contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file or URL for reading and decompress it. Raises: OSError, MissingExtraError."""
    with ExitStack() as stack:
        if is_url(path):
            raw = cast(io.RawIOBase, stack.enter_context(reading(path)))
            file: BinaryIO = io.BufferedReader(raw, READ_BUFFER)
        elif os.fspath(path) == STANDARD_INPUT:
            # By its descriptor: sockets, and standard input under sudo, cannot be opened by path.
            file = stack.enter_context(open(0, "rb", closefd=False))
            if file.seekable():
                file.seek(0)  # reading it again starts at the beginning, as for a named file
        else:
            file = stack.enter_context(open(path, "rb"))
        ending = ending_of(path)
        if not ending:
            yield file
            return
        try:
            # `BufferedReader` splits lines faster than the decompressing classes.
            with io.BufferedReader(unpacked(ending, file), READ_BUFFER) as content:
                yield content
        except (BilmError, OSError, UnicodeDecodeError):
            raise
        except Exception as error:  # zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError
            raise OSError(f"damaged or truncated {ending} file: {error}") from error


@contextmanager
def writing_text(path: PathLike) -> Iterator[TextIO]:
    """Open a UTF-8 text to write, compressed by its ending, all or nothing. Raises: OSError."""
    with replacing(path) as temporary, ExitStack() as stack:
        file: BinaryIO = stack.enter_context(open(temporary, "wb"))
        if ending := ending_of(path):
            file = stack.enter_context(packed(ending, file))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def ending_of(path: PathLike) -> str:
    """Return the ending of a compression in the name of a path or URL; "" for plain text."""
    name = name_of(path).lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), "")


def unpacked_name(path: PathLike) -> str:
    """Return the last part of a path or URL in lower case, without the ending of a compression."""
    return name_of(path).lower().removesuffix(ending_of(path))


def packed(ending: str, file: BinaryIO) -> Any:
    """Return a file that compresses what is written; the same content results in the same bytes."""
    if ending == ".gz":
        return gzip.GzipFile("", "wb", 6, file, mtime=0)  # no name, no time
    if ending == ".zst":
        return _zstd().ZstdFile(file, "wb")
    return bz2.BZ2File(file, "wb") if ending == ".bz2" else lzma.LZMAFile(file, "wb")


def unpacked(ending: str, file: BinaryIO) -> io.RawIOBase:
    """Return a file that decompresses."""
    if ending == ".gz":
        return cast(io.RawIOBase, gzip.GzipFile(fileobj=file))
    decompressors: dict[str, Callable[[], Any]] = {
        ".bz2": bz2.BZ2Decompressor,
        ".xz": lzma.LZMADecompressor,
        ".zst": _zstd_decompressor,
    }
    return _Streams(file, decompressors[ending])


class _Streams(io.RawIOBase):
    """The content of all streams of a compressed file, one after another, from `decompressor` for
    each. Python's own files end without an error where a later stream is damaged or padded."""

    def __init__(self, file: BinaryIO, decompressor: Callable[[], Any]):
        self._file = file
        self._new = decompressor
        self._stream = decompressor()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read until a later position."""
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("compressed text is read forwards")
        while self._position < offset and self.read(min(offset - self._position, READ_BUFFER)):
            pass
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Decompress into a buffer; return the number of bytes, 0 at the end of the file."""
        content = b""
        while not content:
            block = b""
            if self._stream.eof:
                block = self._stream.unused_data.lstrip(b"\0")
                while not block:  # only padding
                    block = self._file.read(READ_BUFFER)
                    if not block:
                        return 0
                    block = block.lstrip(b"\0")
                self._stream = self._new()
            elif self._stream.needs_input:
                block = self._file.read(READ_BUFFER)
                if not block:
                    raise EOFError("it ends inside a stream")
            content = self._stream.decompress(block, len(buffer))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def _zstd() -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return optional(name, "zstd", "zstd")


def _zstd_decompressor() -> Any:
    zstd = _zstd()
    longest = zstd.DecompressionParameter.window_log_max
    return zstd.ZstdDecompressor(options={longest: longest.bounds()[1]})  # of `zstd --long`
