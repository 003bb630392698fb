"""Downloads into the cache.

A file is renamed into place when it is complete and of the expected kind.

requests reads web servers, and fsspec reads object stores. Neither can do both: fsspec reads web
servers with aiohttp, which only the extra `remote` installs, while requests is part of every
installation because TensorFlow requires it; and text that is streamed from the web must be read
from any position, which requests does not offer.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import cached, filled, write_record
from bilm.support.files import replacing, sha256_of
from bilm.support.progress import progress
from bilm.support.remote import RemoteError, reading, stat
from bilm.support.urls import WEB, is_url, masked, name_of, scheme_of

SECONDS = 30  # to connect, and between two pieces
RETRIES = 3  # after a lost connection, with pauses of 1, 2 and 3 seconds
COPY_BYTES = 1 << 20
MISSING = (404, 410)  # answers of a web server that does not have a file


class NotFoundError(WeightsError):
    """A web server has answered that it does not have a file."""


def local_copy(path: str | Path) -> str | Path:
    """Return a path unchanged, or the local copy of a URL: see `fetch`."""
    return fetch(path) if is_url(path) else path


def fetch(
    url: str,
    check: Callable[[Path], object] = Path.exists,
    size: int | None = None,
    sha256: str | None = None,
    name: str | None = None,
) -> Path:
    """Return the local copy of a URL; download it if it is missing.

    Args:
        url: http, https or another scheme that `bilm.support.remote` reads.
        check: function that raises BilmError if the file is not whole or of another kind.
        size, sha256: expected size in bytes and SHA-256; None if they are unknown.
        name: the name that the user requested, if it was not the URL.
    Raises: NotFoundError if a web server does not have the file; WeightsError if the download fails
        in another way; RemoteError if an object store fails.
    """

    def fill(target: Path) -> None:
        logging.info("%s: downloading to %s", masked(url), target.parent)
        with _explaining(url), replacing(target) as part:
            if scheme_of(url) in WEB:
                _download(url, part)
            else:
                with reading(url) as file, open(part, "wb") as out:
                    shutil.copyfileobj(file, out, COPY_BYTES)
            _check_file(part, check, size, sha256)
        write_record(target.parent, name or url, sha256=sha256_of(target))

    return filled(copy_of(url), fill)


def copy_of(url: str) -> Path:
    """Return the path of a URL's local copy, whether it exists or not.

    The copy of an object in an object store belongs to the object's version (ETag).
    """
    key = url if scheme_of(url) in WEB else f"{url}\0{stat(url)}"
    return cached(key) / (name_of(url)[-100:] or "file")


def _download(url: str, path: Path) -> None:
    """Download a file of a web server; start again after a lost connection.

    Raises: requests.RequestException.
    """
    import requests

    lost = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    )
    for n_tries in range(1, RETRIES + 1):
        try:
            _receive(url, path)
            return
        except lost:
            time.sleep(n_tries)
    _receive(url, path)


def _receive(url: str, path: Path) -> None:
    """Write the answer of a web server to a file. Raises: requests.RequestException."""
    import requests

    headers = {"Accept-Encoding": "identity"}
    with requests.get(url, stream=True, timeout=SECONDS, headers=headers) as answer:
        answer.raise_for_status()
        n_bytes = int(answer.headers.get("Content-Length", 0)) or None
        with progress("downloading", "bytes", n_bytes) as log, open(path, "wb") as file:
            for piece in answer.iter_content(COPY_BYTES):
                file.write(piece)
                log.add(len(piece))


def _check_file(
    path: Path, check: Callable[[Path], object], size: int | None, sha256: str | None
) -> None:
    """Compare a downloaded file with what is known about it: see `fetch`. Raises: WeightsError."""
    n_bytes = path.stat().st_size
    if size not in (None, n_bytes):
        raise WeightsError(f"received {n_bytes:,} bytes, expected {size:,}")
    if sha256 is not None and sha256_of(path) != sha256:
        raise WeightsError(f"received a file of SHA-256 {sha256_of(path)}, expected {sha256}")
    try:
        check(path)
    except BilmError as error:
        raise WeightsError(str(error).replace(str(path), "the downloaded file")) from error


@contextmanager
def _explaining(url: str) -> Iterator[None]:
    """Turn errors of the block into one line that names the URL."""
    try:
        yield
    except RemoteError:  # names the URL
        raise
    except (OSError, ValueError) as error:  # requests' errors are OSError
        answer = getattr(error, "response", None)
        is_missing = answer is not None and answer.status_code in MISSING
        reason = masked(" ".join(str(error).split()))
        raise (NotFoundError if is_missing else WeightsError)(
            f"{masked(url)}: not in the cache, and cannot be downloaded: {reason}"
        ) from error
