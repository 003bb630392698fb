"""Files in object stores and on web servers, by URL: the only module that uses fsspec.

Reading requests ranges of bytes, so that a reader can start anywhere, and repeats a failed request
after a growing pause. Writing uses uploads that become visible only when they are complete.
fsspec selects the file system by the scheme of the URL: `s3://`, `gs://`, `az://`, `https://` and
others (https://filesystem-spec.readthedocs.io).
"""

from __future__ import annotations

import io
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from absl import logging

from bilm.errors import DataError
from bilm.support.imports import MissingExtraError, needed
from bilm.support.progress import progress
from bilm.support.urls import WEB, masked, scheme_of

T = TypeVar("T")

MAGIC = re.compile(r"[*?[]")  # characters of a pattern
EXTRA = "remote"

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # mean seconds between attempts to read
FIRST_WAITS = (0.5, 2.0)  # before anything was read: a wrong address must not take a minute
ATTEMPTS = 3  # of botocore, for each attempt here
S3_RETRIES = 8  # of s3fs, with pauses of 10 s in total; an upload has no others
CONNECT_SECONDS, READ_SECONDS = 20, 60
MIN_BLOCK, MAX_BLOCK = 1 << 18, 1 << 23  # bytes of a range; doubled while the reader reads on
UPLOAD_BLOCK = 1 << 26  # bytes of a part of an upload; S3 permits 10,000 parts
COPY_BYTES = 1 << 20
THREADS = 16  # requests at a time that ask for sizes
MAX_LISTED = 100_000  # objects under a prefix

_random = random.Random()  # a separate generator: programs may depend on the common one
_listed: dict[str, str] = {}  # version of each listed object, by URL


class RemoteError(DataError):
    """A file behind a URL that cannot be read or written."""


class Stat(NamedTuple):
    """The size and the version of a file.

    Fields:
        size: bytes; None if the server does not state it.
        version: ETag, or else another text that changes with the content; "" if there is none.
    """

    size: int | None
    version: str


# --- listing ---


def matching(pattern: str) -> list[str]:
    """Return the URLs of the files that a URL or a pattern with `*`, `?` and `[...]` matches,
    sorted. The store is listed once.

    A web address is never a pattern, because web servers cannot list files.

    Raises: RemoteError if nothing matches, if a match is a folder or if the store does not answer.
    """
    fs, path = _filesystem(pattern)
    if scheme_of(pattern) in WEB or not MAGIC.search(path):
        if scheme_of(pattern) in WEB and "*" in pattern:
            raise RemoteError(
                f"{masked(pattern)}: a web address cannot contain *, because web servers do not "
                "list files; expected the address of one file"
            )
        _listed[pattern] = stat(pattern).version
        return [pattern]
    found = _attempt(pattern, "listed", lambda: fs.glob(path, detail=True), FIRST_WAITS)
    prefix = pattern.removesuffix(path) if pattern.endswith(path) else f"{scheme_of(pattern)}://"
    urls = {prefix + name: info for name, info in found.items() if info["type"] != "directory"}
    if not urls and is_file(pattern):  # a name that contains pattern characters
        urls = {pattern: fs.info(path)}
    if not urls:
        raise RemoteError(f"{masked(pattern)}: no file matches this pattern")
    _listed.update((url, _stat(info).version) for url, info in urls.items())
    return sorted(urls)


def listed_under(url: str) -> dict[str, Stat]:
    """Return the files below a URL, which need not end with a slash, by their relative paths.

    Raises: RemoteError if there is none, or more than `MAX_LISTED`.
    """
    fs, path = _filesystem(url)
    found = _attempt(url, "listed", lambda: fs.find(path, detail=True), FIRST_WAITS)
    root = path.rstrip("/") + "/"
    below = {
        name.removeprefix(root): _stat(info)
        for name, info in found.items()
        if name.startswith(root) and not name.endswith("/")
    }
    if not below:
        raise RemoteError(f"{masked(url)}: found neither an object nor a folder of this name")
    if len(below) > MAX_LISTED:
        raise RemoteError(f"{masked(url)}: contains more than {MAX_LISTED:,} objects")
    return below


def is_file(url: str) -> bool:
    """Return whether a URL is an object; False for a prefix of objects and if nothing exists.

    Raises: RemoteError if the store does not answer or refuses.
    """
    fs, path = _filesystem(url)
    try:
        info = _attempt(url, "found", lambda: fs.info(path), FIRST_WAITS)
    except RemoteError as error:
        if isinstance(error.__cause__, FileNotFoundError) and not _is_bucket(error.__cause__):
            return False
        raise
    return info["type"] != "directory"


def stat(url: str, waits: tuple[float, ...] | None = None) -> Stat:
    """Return the size and version that a file has now.

    Args:
        url: the file.
        waits: seconds between attempts; None for `FIRST_WAITS`.
    Raises: RemoteError if it is missing, is a folder or cannot be accessed.
    """
    fs, path = _filesystem(url)
    waits = FIRST_WAITS if waits is None else waits
    info = _attempt(url, "read", lambda: fs.info(path), waits)
    if info["type"] == "directory":
        raise RemoteError(
            f"{masked(url)}: is a folder; expected a file or a pattern such as {url.rstrip('/')}/*"
        )
    return _stat(info)


def stats(urls: Iterable[str]) -> list[Stat]:
    """Return `stat` of each URL; several are requested at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(stat, urls))


def _stat(info: dict[str, Any]) -> Stat:
    keys = "ETag", "etag", "generation", "md5Hash", "content_md5", "Last-Modified", "mtime"
    version = next((str(info[key]) for key in keys if info.get(key)), "")
    return Stat(info.get("size"), version.strip('"'))


# --- file systems and errors ---


def _filesystem(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it.

    Raises: MissingExtraError, also if the package for the scheme is missing; RemoteError for an
        unknown scheme or an unusable address.
    """
    shown = masked(url)
    with needed(EXTRA, f"{shown}: access by URL"):
        import fsspec.config
        import fsspec.core
    try:
        scheme = scheme_of(url)
        chosen = fsspec.config.conf.get(scheme, {})  # the user's settings take precedence
        settings = {k: v for k, v in _settings(scheme).items() if k not in chosen}
        fs, path = fsspec.core.url_to_fs(url, **settings)
    except ImportError as error:
        hint = f"; in a checkout of bilm, run pip install '.[{EXTRA}]'"
        more = hint if scheme in ("s3", *WEB) else ""
        raise MissingExtraError(f"{shown}: a package is missing: {error}{more}") from error
    except ValueError as error:
        raise RemoteError(
            f"{shown}: cannot be used ({error}); expected s3://, gs://, az://, https:// or another "
            "scheme that fsspec supports"
        ) from error
    if scheme == "s3":
        fs.retries = S3_RETRIES
    return fs, path


def _settings(scheme: str) -> dict[str, Any]:
    """Return arguments of the file system: listings are not cached, since objects change."""
    common: dict[str, Any] = {"use_listings_cache": False}
    if scheme in WEB:
        from aiohttp import ClientTimeout

        # Without a limit on the total time, which large files may exceed.
        timeout = ClientTimeout(None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        common["client_kwargs"] = {"trust_env": True, "timeout": timeout}
        common["headers"] = {"Accept-Encoding": "identity"}
    if scheme in ("s3", "s3a"):
        common["config_kwargs"] = {
            "retries": {"mode": "standard", "max_attempts": ATTEMPTS},
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
        }
    return common


def _attempt(
    url: str, doing: str, action: Callable[[], T], waits: tuple[float, ...] | None = None
) -> T:
    """Return the result of an action; repeat it after a pause if the failure may be temporary.

    Raises: RemoteError with one line if it fails permanently, or once more after the last pause.
    """
    for wait in (*(WAITS if waits is None else waits), None):
        try:
            return action()
        except (RemoteError, TypeError, AttributeError, NameError, AssertionError):
            raise
        except Exception as error:  # fsspec's file systems raise the exceptions of many packages
            if wait is None or not _may_pass(error):
                raise RemoteError(f"{masked(url)}: cannot be {doing}: {_reason(error)}") from error
            pause = wait * _random.uniform(0.5, 1.5)
            logging.warning("%s: %s; next attempt in %.1f s", masked(url), _reason(error), pause)
        time.sleep(pause)
    raise AssertionError  # the last attempt returns or raises


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of aiohttp, botocore, gcsfs or adlfs, or its causes."""
    for one in _chain(error):
        if "http_exceptions" in type(one).__module__:
            continue  # a cut answer has the code 400 in aiohttp, which no server sent
        answer = getattr(one, "response", None)
        if isinstance(answer, dict):  # of botocore
            return answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        for name in ("status", "status_code", "code"):
            if isinstance(value := getattr(one, name, None), int):
                return value
    return None


def _may_pass(error: Exception) -> bool:
    """Return whether a failure may be temporary: a lost connection, or an overloaded server."""
    if (status := _status(error)) is not None:
        return status in (408, 429) or status >= 500
    kinds = FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError, ValueError
    first = list(_chain(error))[-1]
    return not isinstance(first, kinds) and not _lacks_credentials(error) and not _changed(error)


def _lacks_credentials(error: BaseException) -> bool:
    return "Credential" in type(list(_chain(error))[-1]).__name__


def _changed(error: BaseException) -> bool:
    """Return whether a store refused a range, because the object is not the one that was opened."""
    return type(error).__name__ == "FileExpired" or _status(error) == 412


def _is_bucket(error: BaseException) -> bool:
    return "bucket" in str(error).lower()


def _reason(error: BaseException) -> str:
    """Return an error in one line, with what to do about it."""
    text = masked(" ".join(str(error).split())) or type(error).__name__
    status, cause = _status(error), list(_chain(error))[-1]
    if _changed(error):
        return "it has changed while it was read; start again"
    if _lacks_credentials(error):
        return (
            f"{text}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or "
            "FSSPEC_S3_ANON=true for a public bucket"
        )
    if status in (401, 403) or isinstance(error, PermissionError):
        return f"access denied ({text}); check the credentials and their rights to it"
    if status in (404, 410) or (status is None and isinstance(cause, FileNotFoundError)):
        return "the bucket does not exist" if _is_bucket(error) else "it does not exist"
    if isinstance(error, FileNotFoundError) and cause is not error:
        text = masked(" ".join(str(cause).split())) or type(cause).__name__
    return text


# --- reading ---


def open_reader(url: str) -> io.BufferedReader:
    """Open a file for reading bytes from any position.

    Raises: RemoteError, here and while reading, if it cannot be read, or if it has changed since it
        was listed or opened.
    """
    return io.BufferedReader(Reader(url), 1 << 17)


class Reader(io.RawIOBase):
    """The bytes of a URL, requested in ranges; a failed request is repeated.

    Ranges grow from `MIN_BLOCK` to `MAX_BLOCK` bytes while the reader reads on, and start small
    again after a jump. A web server without ranges is read from the start of the file instead, as
    often as the reader jumps back.
    """

    def __init__(self, url: str):
        super().__init__()
        self.url = url
        self._fs, self._path = _filesystem(url)
        # A listed object was accessible before, so that it is worth waiting for.
        self.size, self._version = stat(url, WAITS if url in _listed else None)
        if _listed.get(url, self._version) != self._version:
            raise RemoteError(f"{masked(url)}: has changed since it was listed; start again")
        self._position, self._start, self._block, self._ahead = 0, -1, b"", MIN_BLOCK
        self._file: Any = None
        self._has_ranges = bool(self.size)
        self._stream_at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move without a request. Raises: OSError for the end of a file of unknown size."""
        if whence == os.SEEK_END and self.size is None:
            raise OSError(f"{masked(self.url)}: the server does not state the size")
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size or 0}
        self._position = max(0, bases[whence] + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read up to the size of the buffer; see `open_reader` for the exceptions."""
        data = b""
        if self._has_ranges:
            data = self._from_block(len(buffer))
        if not self._has_ranges:  # also if the server has just ignored a range
            data = _attempt(self.url, "read", lambda: self._from_stream(len(buffer)))
        if not data and len(buffer):
            self._check_version()
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the connection."""
        if not self.closed and self._file is not None:
            self._file.close()
        super().close()

    def _from_block(self, n: int) -> bytes:
        at, size = self._position, self.size or 0
        end = self._start + len(self._block)
        if not self._start <= at < end:
            if at >= size:
                return b""
            self._ahead = min(2 * self._ahead, MAX_BLOCK) if at == end else MIN_BLOCK
            length = min(self._ahead, size - at)
            self._block = _attempt(self.url, "read", lambda: self._range(at, length))
            self._start = at
        return self._block[at - self._start : at - self._start + n]

    def _range(self, start: int, length: int) -> bytes:
        """Request some bytes. Sets `_has_ranges` to False if the server ignores ranges."""
        if self._file is None:
            how = {"cache_type": "none", "block_size": MAX_BLOCK}
            self._file = self._fs.open(self._path, "rb", **how)
        try:
            self._file.seek(start)
            data = self._file.read(length)
        except ValueError as error:
            if scheme_of(self.url) not in WEB or "range" not in str(error):
                raise
            logging.info("%s: the server has no ranges; reading from the start", masked(self.url))
            self._has_ranges = False
            self._file.close()
            self._file = None
            return b""
        if len(data) != length:
            raise ConnectionError(f"received {len(data):,} of {length:,} bytes at {start:,}")
        return data

    def _from_stream(self, n: int) -> bytes:
        """Read on in one long answer of a web server."""
        try:
            if self._file is None or self._stream_at > self._position:
                self._file = self._fs.open(self._path, "rb", block_size=0)
                self._stream_at = 0
            while True:
                left = self._position - self._stream_at
                data = self._file.read(min(left, COPY_BYTES) or n)
                if not data and self.size is not None and self._stream_at < self.size:
                    raise ConnectionError(f"received {self._stream_at:,} of {self.size:,} bytes")
                self._stream_at += len(data)
                if not left or not data:
                    return data if not left else b""
        except Exception:
            self._file = None  # the next attempt starts again
            raise

    def _check_version(self) -> None:
        """At the end: bytes of two versions must not be mixed."""
        if self._version and stat(self.url, WAITS).version != self._version:
            raise RemoteError(f"{masked(self.url)}: has changed while it was read; start again")


# --- writing ---


def check_writable(url: str) -> None:
    """Check that an object can be written, before the work whose result it will contain.

    For S3 and Google Cloud Storage, an upload is started and aborted; no object is created.

    Raises: RemoteError if the scheme cannot be written, the bucket is missing or access is denied.
    """
    fs, path = _filesystem(url)
    if scheme_of(url) in WEB:
        raise RemoteError(
            f"{masked(url)}: web addresses cannot be written; expected a local file or an object "
            "store, such as s3://BUCKET/NAME"
        )
    if scheme_of(url) not in ("s3", "s3a", "gs", "gcs"):
        return

    def probe() -> None:
        file = fs.open(path, "wb", autocommit=False)
        try:
            file.write(b"\n")
            file.flush(force=True)
        finally:
            _discard(file, url)

    _attempt(url, "written", probe, FIRST_WAITS)


@contextmanager
def writing(url: str) -> Iterator[BinaryIO]:
    """Yield a file whose content becomes the object when the block succeeds.

    Parts are uploaded as they are written (multipart upload). If the block fails, the upload is
    aborted and an earlier object of this name is unchanged. After a kill the store keeps the parts,
    without an object, until a rule of the bucket removes them.

    Raises: RemoteError if the store fails.
    """
    fs, path = _filesystem(url)
    how = {"autocommit": False, "block_size": UPLOAD_BLOCK}
    file = _attempt(url, "written", lambda: fs.open(path, "wb", **how), FIRST_WAITS)
    upload = _Upload(file, url)
    try:
        yield cast(BinaryIO, upload)
        upload.finish()
    except BaseException:
        _discard(file, url)
        raise


def upload(source: Path, url: str) -> None:
    """Upload a local file; see `writing`. Raises: RemoteError, OSError."""
    with (
        open(source, "rb") as file,
        progress("uploading", "bytes", source.stat().st_size) as shown,
        writing(url) as out,
    ):
        while piece := file.read(COPY_BYTES):
            out.write(piece)
            shown.add(len(piece))


class _Upload(io.RawIOBase):
    """A file of fsspec whose errors name the URL in one line."""

    def __init__(self, file: Any, url: str):
        super().__init__()
        self._file, self.url = file, url

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        # Not repeated here: the file would contain the data twice. The file systems repeat requests
        # themselves.
        data = bytes(data)
        _attempt(self.url, "written", lambda: self._file.write(data), ())
        return len(data)

    def finish(self) -> None:
        """Upload the rest and make the object visible. Raises: RemoteError."""

        def commit() -> None:
            self._file.close()
            self._file.commit()

        _attempt(self.url, "written", commit, ())


def _discard(file: Any, url: str) -> None:
    """Abort an upload, and prevent that the file commits it when it is closed or deleted."""
    with suppress(AttributeError):  # it is a property in file systems that write only on commit
        file.closed = True
    try:
        file.discard()
    except Exception as error:  # the upload may not have started, or the store may be down
        logging.warning(
            "%s: the upload was not completed and could not be aborted (%s); no object was "
            "written, but the store may keep its parts",
            masked(url), _reason(error),
        )  # fmt: skip
