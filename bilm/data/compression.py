"""Compressed text: gzip, bz2, xz and zstd, recognized by the first bytes when it is read and by the
ending of the name when it is written.

zstd requires pyarrow, because Python contains it only from version 3.14 on.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from bilm.support.imports import optional
from bilm.support.urls import name_of

N_MAGIC = 10  # bytes that identify a compression
BUFFER = 1 << 17
SKIP = 1 << 20  # bytes read at a time to move forward
DAMAGED = (OSError, zlib.error, lzma.LZMAError)  # raised for damaged content


class Compression(NamedTuple):
    """A compression.

    Fields:
        name: its name for messages.
        ending: ending of file names.
        magic: matches the first bytes of a file.
        reader: returns the uncompressed bytes of an open file.
        writer: returns a file that compresses into an open file; the same content results in the
            same bytes.
    """

    name: str
    ending: str
    magic: re.Pattern[bytes]
    reader: Callable[[BinaryIO], Any]
    writer: Callable[[BinaryIO], Any]


def _gzip_writer(file: BinaryIO) -> Any:
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)  # no name, no time


def _zstd_writer(file: BinaryIO) -> Any:
    return _arrow("writing").CompressedOutputStream(file, "zstd")


class _Zstd(io.RawIOBase):
    """The uncompressed bytes of a zstd file of one or more frames."""

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file, self._at = file, 0
        self._stream = _arrow("reading").CompressedInputStream(file, "zstd")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move forward by decompressing, or back by starting again."""
        target = offset + (self._at if whence == os.SEEK_CUR else 0)
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the uncompressed size is unknown")
        if target < self._at:
            self._file.seek(0)
            self._stream, self._at = _arrow("reading").CompressedInputStream(self._file, "zstd"), 0
        while self._at < target and self._read(min(SKIP, target - self._at)):
            pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, n: int) -> bytes:
        try:
            data = self._stream.read(n)
        except OSError as error:
            if "Truncated" in str(error):
                raise EOFError(str(error)) from error
            raise
        self._at += len(data)
        return data


def _arrow(doing: str) -> Any:
    return optional("pyarrow", "parquet", f"{doing} zstd")


COMPRESSIONS = (
    Compression(
        "gzip", ".gz", re.compile(rb"\x1f\x8b"), lambda f: gzip.GzipFile(fileobj=f), _gzip_writer
    ),
    Compression(  # the second number starts a block, the third one ends a file without blocks
        "bz2", ".bz2", re.compile(rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)", re.DOTALL),
        bz2.BZ2File, lambda f: bz2.BZ2File(f, "wb"),
    ),
    Compression(
        "xz", ".xz", re.compile(rb"\xfd7zXZ\x00"), lzma.LZMAFile,
        lambda f: lzma.LZMAFile(f, "wb"),  # noqa: SIM115
    ),
    Compression("zstd", ".zst", re.compile(rb"\x28\xb5\x2f\xfd"), _Zstd, _zstd_writer),
)  # fmt: skip
ENDINGS = tuple(found.ending for found in COMPRESSIONS)


def unpacked_name(path: str | os.PathLike) -> str:
    """Return the last part of a path or URL in lower case, without the ending of a compression."""
    name = name_of(path).lower()
    return next((name.removesuffix(e) for e in ENDINGS if name.endswith(e)), name)


def compression_of(file: io.BufferedReader) -> Compression | None:
    """Return the compression of an open file by its next bytes; None if it is not compressed."""
    start = file.peek(N_MAGIC)[:N_MAGIC]
    return next((one for one in COMPRESSIONS if one.magic.match(start)), None)


@contextmanager
def decompressing(file: io.BufferedReader) -> Iterator[BinaryIO]:
    """Yield the uncompressed bytes of an open file.

    Raises: EOFError, naming the compression, if a compressed file is truncated; the exceptions of
        `DAMAGED`; MissingExtraError for zstd without pyarrow.
    """
    found = compression_of(file)
    if found is None:
        yield file
        return
    try:
        # `BufferedReader` splits lines faster than the decompressing classes.
        with io.BufferedReader(found.reader(file), BUFFER) as unpacked:
            yield cast(BinaryIO, unpacked)
    except EOFError as error:
        raise EOFError(f"truncated {found.name} file") from error


def compressing(path: str | os.PathLike, file: BinaryIO) -> BinaryIO | None:
    """Return a file that compresses into an open file, by the ending of the path; None if the
    ending does not belong to a compression."""
    name = os.fspath(path).lower()
    return next((c.writer(file) for c in COMPRESSIONS if name.endswith(c.ending)), None)
