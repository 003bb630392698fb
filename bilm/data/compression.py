"""Compressed text: gzip, bz2, xz and zstd, recognized by the ending of the name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from bilm.errors import BilmError
from bilm.support.imports import optional
from bilm.support.urls import name_of

ENDINGS = (".gz", ".bz2", ".xz", ".zst")


def ending_of(path: str | os.PathLike) -> str:
    """Return the ending of a compression in the name of a path or URL; "" for plain text."""
    name = name_of(path).lower()
    return next((ending for ending in ENDINGS if name.endswith(ending)), "")


def unpacked_name(path: str | os.PathLike) -> str:
    """Return the last part of a path or URL in lower case, without the ending of a compression."""
    return name_of(path).lower().removesuffix(ending_of(path))


def packed(ending: str, file: BinaryIO, mode: str) -> Any:
    """Return a file that decompresses or compresses; the same content results in the same bytes."""
    if ending == ".gz":
        return gzip.GzipFile("", mode, 6, file, mtime=0)  # no name, no time
    if ending == ".zst":
        name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return optional(name, "zstd", "zstd").ZstdFile(file, mode)
    opener: Any = bz2.BZ2File if ending == ".bz2" else lzma.LZMAFile
    return opener(file, mode)


@contextmanager
def decompressing(path: str | os.PathLike, file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the uncompressed bytes of an open file.

    Raises: OSError if it is damaged or truncated; MissingExtraError if zstd is not installed.
    """
    if not (ending := ending_of(path)):
        yield file
        return
    try:
        # `BufferedReader` splits lines faster than the decompressing classes.
        with io.BufferedReader(packed(ending, file, "rb"), 1 << 17) as unpacked:
            yield unpacked
    except (BilmError, OSError, UnicodeDecodeError):
        raise
    except Exception as error:  # zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError
        raise OSError(f"damaged or truncated {ending} file: {error}") from error
