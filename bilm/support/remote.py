"""Files in object stores and on web servers, by URL: the only module that uses fsspec."""

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bilm.errors import BilmError, DataError
from bilm.support.imports import MissingExtraError
from bilm.support.urls import WEB, masked, scheme_of

READ_SECONDS = 60  # without data from a web server
THREADS = 16  # requests at a time
MAX_SHOWN = 300  # characters of a foreign error message
# Facts that stores tell about a file and that change with its content, the best first.
VERSION_KEYS = "ETag", "etag", "generation", "md5Hash", "content_md5", "Last-Modified", "mtime"


class RemoteError(DataError):
    """A file behind a URL that cannot be read or written."""


class Stat(NamedTuple):
    """The size of a file, None if unknown, and a text that changes with the content, or ""."""

    size: int | None
    version: str


def matching(pattern: str) -> list[str]:
    """Return the sorted URLs of the files that a URL or pattern with `*`, `?` and `[...]` matches.
    A web address is never a pattern, because web servers do not list files."""
    if scheme_of(pattern) in WEB:
        return [pattern]
    fs, path = _filesystem(pattern)
    listed: dict[str, dict[str, Any]] = {}
    with naming(pattern, "listed"), suppress(FileNotFoundError):
        # A name may contain pattern characters.
        listed = fs.glob(path, detail=True) or {path: fs.info(path)}
    files = [name for name, info in listed.items() if info["type"] != "directory"]
    if not files:
        raise RemoteError(f"{masked(pattern)}: no file matches this name or pattern")
    prefix = pattern.removesuffix(path) if pattern.endswith(path) else f"{scheme_of(pattern)}://"
    return sorted(prefix + name for name in files)


def stat(url: str) -> Stat:
    """Return the size and version that a file has now."""
    fs, path = _filesystem(url)
    with naming(url, "read"):
        info = fs.info(path)
    version = next((str(info[key]) for key in VERSION_KEYS if info.get(key)), "")
    return Stat(info.get("size"), version.strip('"'))


def stats(urls: Iterable[str]) -> list[Stat]:
    """Return `stat` of each URL; several are requested at a time."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(stat, urls))


@contextmanager
def reading(url: str) -> Iterator[BinaryIO]:
    """Open a file for reading bytes. Raises: RemoteError, also for an error in the block."""
    fs, path = _filesystem(url)
    with naming(url, "read"), fs.open(path, "rb") as file:
        yield file


def upload(source: Path, url: str) -> None:
    """Upload a local file. If this fails, an earlier object of this name is unchanged."""
    fs, path = _filesystem(url)
    with (
        naming(url, "written"),
        open(source, "rb") as file,
        fs.transaction,
        fs.open(path, "wb") as out,
    ):
        shutil.copyfileobj(file, out)


def check_writable(url: str) -> None:
    """Raise RemoteError if a URL is a web address or its bucket does not exist."""
    fs, path = _filesystem(url)
    bucket = path.partition("/")[0]
    if scheme_of(url) in WEB or (bucket and not fs.exists(bucket)):
        raise RemoteError(f"{masked(url)}: cannot be written; expected an existing bucket")


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec.core

    settings: dict[str, Any] = {"use_listings_cache": False}  # objects change
    try:
        if scheme_of(url) in WEB:
            from aiohttp import ClientTimeout

            timeout = ClientTimeout(None, sock_read=READ_SECONDS)  # large files take long
            # Ranges of compressed responses cannot be decompressed.
            settings["headers"] = {"Accept-Encoding": "identity"}
            settings["client_kwargs"] = {"trust_env": True, "timeout": timeout}
        return fsspec.core.url_to_fs(url, **settings)
    except ImportError as error:
        raise MissingExtraError(
            f"{masked(url)}: {error}; in a checkout of bilm, run pip install '.[remote]'"
        ) from error
    except ValueError as error:
        raise RemoteError(f"{masked(url)}: cannot be used: {error}") from error


@contextmanager
def naming(url: str, doing: str, kind: type[BilmError] = RemoteError) -> Iterator[None]:
    """Turn errors of the block into one line of a `kind` of error that names the URL."""
    try:
        yield
    except BilmError:
        raise
    except Exception as error:  # other packages raise exceptions without a common base class
        reason = masked(" ".join(str(error).split()))[:MAX_SHOWN] or type(error).__name__
        raise kind(f"{masked(url)}: cannot be {doing}: {reason}") from error
