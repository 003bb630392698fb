"""Files from the web, fetched once: under their final name only when they are whole.

The standard library does: it reads what has come without waiting for more (`read1`), which a floor
on the rate needs, and a chain of handlers without FTP and files follows no redirect to them.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path, PurePosixPath
from threading import Event, Timer
from typing import NamedTuple
from urllib import request
from urllib.error import HTTPError
from urllib.parse import urlsplit

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.files import replacing
from bilm.hdf5 import open_hdf5
from bilm.schema import MAX_BYTES as MAX_OPTIONS_BYTES
from bilm.schema import read_object

MAX_BYTES = 8 << 30  # of weights or an archive; the largest published weights have 0.4 GB
PIECE = 1 << 18  # bytes read at once, at most
LOG_SECONDS = 5


class Kind(NamedTuple):
    """What a download must be: its name, its largest size in bytes, and how to see that it is."""

    name: str
    max_bytes: int
    is_whole: Callable[[Path], bool]


class Patience(NamedTuple):
    """How long a server may take.

    Fields:
        seconds: to connect, to answer, and between two pieces.
        rate: bytes a second, the least over each such time.
    """

    seconds: float
    rate: int


PATIENCE = Patience(seconds=30.0, rate=8 << 10)


def _reads(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except BilmError:
        return False
    return True


def _open_hdf5(path: Path) -> None:
    with open_hdf5(path):  # HDF5 finds out itself whether its file was cut short
        pass


OPTIONS = Kind("a JSON object", MAX_OPTIONS_BYTES, lambda path: _reads(read_object, path))
WEIGHTS = Kind("a whole HDF5 file", MAX_BYTES, lambda path: _reads(_open_hdf5, path))
ARCHIVE = Kind("a whole ZIP archive", MAX_BYTES, zipfile.is_zipfile)


def cached(key: str) -> Path:
    """Return the folder of a key in the cache, whether it is there or not.

    The cache is the folder that `BILM_CACHE` names, or one among the user's.
    Raises: WeightsError if the user has no home.
    """
    cache, home = os.environ.get("BILM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if not cache:  # a relative XDG_CACHE_HOME counts for none, says its specification
        cache = Path(home if os.path.isabs(home) else "~/.cache") / "bilm"
    try:
        folder = Path(cache).expanduser()
    except RuntimeError:
        raise WeightsError(
            f"{cache}: there is no home folder; set BILM_CACHE to a folder"
        ) from None
    return folder / hashlib.sha256(key.encode()).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Make a folder of the cache, if it is not there. Raises: WeightsError if it is read-only."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise WeightsError(f"{folder}: this cache cannot be written; set BILM_CACHE to a folder")


def fetch(
    url: str,
    kind: Kind,
    size: int | None = None,
    sha256: str | None = None,
    patience: Patience = PATIENCE,
) -> Path:
    """Return the local copy of a URL; without a copy, download it.

    Args:
        url: http or https.
        kind: what is expected there.
        size: bytes, where they are known.
        sha256: hash of the content, where it is known.
        patience: how long the server may take.
    Raises: WeightsError if the download fails, takes too long, is cut short or is not what was
        expected; nothing is left under the final name then. OSError for the disk.
    """
    name = PurePosixPath(urlsplit(url).path).name
    target = cached(url) / (name if name not in ("", "..") else "file")
    if os.path.exists(target):
        return target
    make_folder(target.parent)
    logging.info("%s: fetching it into %s", url, target.parent)
    with replacing(target) as part:
        digest, n_bytes = hashlib.sha256(), 0
        with open(part, "wb") as file:
            for piece in _pieces(url, min(kind.max_bytes, size or kind.max_bytes), patience):
                file.write(piece)
                digest.update(piece)
                n_bytes += len(piece)
        if size is not None and n_bytes != size:
            raise WeightsError(f"{url}: {n_bytes:,} bytes came, expected {size:,}; cut short?")
        if sha256 is not None and digest.hexdigest() != sha256:
            raise WeightsError(f"{url}: its SHA-256 is {digest.hexdigest()}, expected {sha256}")
        if not kind.is_whole(part):
            with open(part, "rb") as file:
                start = file.read(20)
            raise WeightsError(
                f"{url}: {n_bytes:,} bytes came that begin with {start!r}, expected {kind.name}"
            )
    return target


def _pieces(url: str, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    """Yield the body of a URL as it comes. Raises: WeightsError."""
    try:
        with _opener().open(url, timeout=patience.seconds) as answer:
            coding = answer.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity":
                raise WeightsError(f"{url}: comes packed as {coding}, which was not asked for")
            yield from _body(url, answer, max_bytes, patience)
    except WeightsError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: no URL
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise WeightsError(f"{url}: not in the cache, and cannot be fetched: {error!s}") from error


def _body(url: str, answer: HTTPResponse, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    length, n_bytes, n_before = answer.length, 0, 0
    start = logged = time.monotonic()
    if (length or 0) > max_bytes:
        raise WeightsError(f"{url}: has {length:,} bytes, expected at most {max_bytes:,}")
    while length is None or n_bytes < length:
        piece = answer.read1(PIECE if length is None else min(PIECE, length - n_bytes))
        if not piece:
            break
        n_bytes += len(piece)
        if n_bytes > max_bytes:
            raise WeightsError(f"{url}: has more than {max_bytes:,} bytes, the most expected")
        yield piece
        now = time.monotonic()
        if now - start > patience.seconds:
            if n_bytes - n_before < patience.rate * (now - start):
                rate = (n_bytes - n_before) / (now - start)
                raise WeightsError(
                    f"{url}: {rate:,.0f} bytes a second came, expected {patience.rate:,} or more"
                )
            start, n_before = now, n_bytes
        if now - logged > LOG_SECONDS:
            logging.info("%s: %.1f MB of %s", url, n_bytes / 1e6, length and f"{length / 1e6:.1f}")
            logged = now
    if length is not None and n_bytes < length:
        raise WeightsError(f"{url}: {n_bytes:,} of {length:,} bytes came; cut short")


class _Punctual:
    """Of a connection: its answer is there in time, also if the header comes in drops."""

    def getresponse(self) -> HTTPResponse:
        late = Event()

        def hang_up() -> None:
            late.set()
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

        alarm = Timer(self.timeout, hang_up)
        alarm.start()
        try:
            answer = super().getresponse()
        except (OSError, HTTPException):
            if not late.is_set():
                raise
        finally:
            alarm.cancel()
        if late.is_set():
            raise TimeoutError(f"no answer in {self.timeout:g} s")
        return answer


class _Plain(_Punctual, HTTPConnection):
    pass


class _Encrypted(_Punctual, HTTPSConnection):
    pass


class _PlainHandler(request.HTTPHandler):
    def http_open(self, asked: request.Request) -> HTTPResponse:
        return self.do_open(_Plain, asked)


class _EncryptedHandler(request.HTTPSHandler):
    def https_open(self, asked: request.Request) -> HTTPResponse:
        return self.do_open(_Encrypted, asked)


def _opener() -> request.OpenerDirector:
    """Return what opens http and https alone, wherever it is sent."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.UnknownHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPRedirectHandler,
        request.HTTPErrorProcessor,
        _PlainHandler,
        _EncryptedHandler,
    ):
        opener.add_handler(handler())
    return opener
