"""Files from the web, fetched once: under their final name only when they are whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.parse import urlsplit

import keras

from bilm.errors import WeightsError


def cache_folder() -> Path:
    """Give the folder that downloads are kept in: `BILM_CACHE`, or one in the user's cache.

    Raises: WeightsError if it cannot be written; `keras.utils.get_file` would take another.
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bilm"
    folder = Path(os.environ.get("BILM_CACHE") or default)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise WeightsError(f"{folder}: the cache cannot be written; set BILM_CACHE to a folder")
    return folder


def fetch(url: str, size: int | None = None, sha256: str | None = None) -> Path:
    """Give the local copy of a URL; without a copy, download it with a progress bar.

    Args:
        url: http or https.
        size: bytes, where they are known.
        sha256: hash of the content, where it is known.
    Raises: WeightsError if the download fails, is cut short or is not what was expected; nothing
        is left under the final name then.
    """
    name = PurePosixPath(urlsplit(url).path).name or "file"
    folder = cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:16]
    target, part = folder / name, f"{name}.{os.getpid()}.part"
    if target.exists():
        return target
    folder.mkdir(exist_ok=True)
    try:
        # It prints the progress, and refuses a body shorter than the server's Content-Length.
        keras.utils.get_file(part, url, cache_dir=str(folder), cache_subdir="")
    except Exception as error:  # a bare Exception is what get_file makes of the server's answer
        if isinstance(error.__context__, HTTPError):
            error.__context__.close()  # it holds the connection
        raise WeightsError(f"{url}: not in the cache, and cannot be fetched: {error}") from error
    try:
        _check(folder / part, url, size, sha256)
        os.replace(folder / part, target)
    finally:
        (folder / part).unlink(missing_ok=True)
    return target


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
