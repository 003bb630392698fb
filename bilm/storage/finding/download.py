"""Downloads into the cache: pooch reads web servers, fsspec reads object stores.

A file is renamed into place when it is complete and of the expected kind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import cached, filling, write_record
from bilm.support.files import replacing, sha256_of
from bilm.support.progress import progress
from bilm.support.remote import reading, stat
from bilm.support.urls import WEB, is_url, masked, name_of, scheme_of

SECONDS = 30  # to connect, and between two pieces
RETRIES = 3  # after a lost connection, with pauses of 1, 2 and 3 seconds
COPY_BYTES = 1 << 20


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
    Raises: WeightsError if the download fails; its cause is a FileNotFoundError if a web server has
        answered that the file is missing. RemoteError if an object store fails.
    """
    target = copy_of(url)
    if target.exists():
        return target
    with filling(target.parent):
        if target.exists():  # another process has downloaded it in the meantime
            return target
        logging.info("%s: downloading to %s", masked(url), target.parent)
        if scheme_of(url) in WEB:
            _download(url, target, check, size, sha256)
        else:
            with reading(url) as file, replacing(target) as part, open(part, "wb") as out:
                shutil.copyfileobj(file, out, COPY_BYTES)
        write_record(target.parent, name or url, sha256=sha256_of(target))
    return target


def copy_of(url: str) -> Path:
    """Return the path of a URL's local copy, whether it exists or not.

    The copy of an object in an object store belongs to the object's version (ETag).
    """
    key = url if scheme_of(url) in WEB else f"{url}\0{stat(url)}"
    return cached(key) / (name_of(url)[-100:] or "file")


def _download(
    url: str, target: Path, check: Callable[[Path], object], size: int | None, sha256: str | None
) -> None:
    """Download a file of a web server. Raises: WeightsError."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")

    def download(url: str, part: str, caller: pooch.Pooch) -> None:
        # pooch retries after ValueError and the errors of requests, so the others are OSError.
        headers = {"Accept-Encoding": "identity"}
        try:
            with requests.get(url, stream=True, timeout=SECONDS, headers=headers) as answer:
                answer.raise_for_status()
                total = int(answer.headers.get("Content-Length", 0)) or None
                with progress("downloading", "bytes", total) as shown, open(part, "wb") as file:
                    for piece in answer.iter_content(COPY_BYTES):
                        file.write(piece)
                        shown.add(len(piece))
            if size not in (None, n_bytes := os.path.getsize(part)):
                raise OSError(f"received {n_bytes:,} bytes, expected {size:,}")
            check(Path(part))
        except requests.HTTPError as error:
            is_missing = getattr(error.response, "status_code", None) in (404, 410)
            raise (FileNotFoundError if is_missing else OSError)(str(error)) from error
        except BilmError as error:
            raise OSError(str(error).replace(part, "the downloaded file")) from error

    try:
        files = pooch.create(
            target.parent, "", registry={target.name: sha256}, urls={target.name: url},
            retry_if_failed=RETRIES,
        )  # fmt: skip
        files.fetch(target.name, downloader=download)
    except (OSError, ValueError) as error:
        reason = masked(" ".join(str(error).split()))
        raise WeightsError(
            f"{masked(url)}: not in the cache, and cannot be downloaded: {reason}"
        ) from error
