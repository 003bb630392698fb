"""Files from the web, fetched once: under their final name only when they are whole."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.parse import urlsplit

import keras

from bilm.errors import WeightsError
from bilm.files import replacing


def cached(key: str) -> Path:
    """Give the folder of a key in the cache, whether it is there or not.

    The cache is the folder that `BILM_CACHE` names, or one among the user's.
    """
    cache = os.environ.get("BILM_CACHE")
    if not cache:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bilm"
    return Path(cache).expanduser() / hashlib.sha256(key.encode()).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Make a folder of the cache, if it is not there.

    Raises: WeightsError if it cannot be written; `keras.utils.get_file` would take another.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise WeightsError(f"{folder}: this cache cannot be written; set BILM_CACHE to a folder")


def fetch(url: str, size: int | None = None, sha256: str | None = None) -> Path:
    """Give the local copy of a URL; without a copy, download it with a progress bar.

    Args:
        url: http or https.
        size: bytes, where they are known.
        sha256: hash of the content, where it is known.
    Raises: WeightsError if the download fails, is cut short or is not what was expected; nothing
        is left under the final name then.
    """
    name = PurePosixPath(urlsplit(url).path).name
    target = cached(url) / (name if name not in ("", "..") else "file")
    if os.path.exists(target):
        return target
    make_folder(target.parent)
    with replacing(target) as part:
        part.unlink(missing_ok=True)  # of a killed process with this id; get_file would keep it
        _download(url, part)
        _check(part, url, size, sha256)
    return target


def _download(url: str, path: Path) -> None:
    """Write a URL to a path; a body shorter than the server's Content-Length is an error."""
    try:
        with redirect_stdout(sys.stderr):  # standard output is for results
            keras.utils.get_file(path.name, url, cache_dir=str(path.parent), cache_subdir="")
    except Exception as error:  # a bare Exception is what get_file makes of the server's answer
        if isinstance(error.__context__, HTTPError):
            error.__context__.close()  # it holds the connection
        raise WeightsError(f"{url}: not in the cache, and cannot be fetched: {error}") from error


def _check(path: Path, url: str, size: int | None, sha256: str | None) -> None:
    found = path.stat().st_size
    if size is not None and found != size:
        raise WeightsError(f"{url}: {found:,} bytes came, expected {size:,}; cut short?")
    if sha256 is None:
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        raise WeightsError(f"{url}: its SHA-256 is {digest.hexdigest()}, expected {sha256}")
