"""A cache of downloaded files, which get their final names only when they are whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlsplit

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.files import replacing
from bilm.schema import MAX_BYTES as MAX_OPTIONS_BYTES
from bilm.schema import read_object
from bilm.storage.archive import MAX_BYTES, is_archive
from bilm.storage.hdf5 import open_hdf5
from bilm.storage.web import PATIENCE, Patience, pieces

_LOCKS: dict[Path, Lock] = {}


class Kind(NamedTuple):
    """What a download must be: a description, the largest size in bytes, and a test of the file."""

    name: str
    max_bytes: int
    is_whole: Callable[[Path], bool]


def _reads(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except BilmError:
        return False
    return True


def _open_hdf5(path: Path) -> None:
    with open_hdf5(path):  # HDF5 itself notices a file that was cut short
        pass


OPTIONS = Kind("a JSON object", MAX_OPTIONS_BYTES, lambda path: _reads(read_object, path))
WEIGHTS = Kind("a whole HDF5 file", MAX_BYTES, lambda path: _reads(_open_hdf5, path))
ARCHIVE = Kind("a whole ZIP archive or tar.gz", MAX_BYTES, is_archive)


def cached(key: str) -> Path:
    """Return the cache folder of a key, whether it exists or not.

    The cache is the folder that `BILM_CACHE` names, or else `bilm` in the user's cache folder.
    Raises: WeightsError if the user has no home folder.
    """
    cache, home = os.environ.get("BILM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if not cache:  # its specification says to ignore a relative XDG_CACHE_HOME
        cache = Path(home if os.path.isabs(home) else "~/.cache") / "bilm"
    try:
        folder = Path(cache).expanduser()
    except RuntimeError:
        raise WeightsError(
            f"{cache}: no home folder; set BILM_CACHE to a folder for downloads"
        ) from None
    return folder / hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Create a cache folder unless it exists. Raises: WeightsError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise WeightsError(f"{folder}: cannot write to the cache; set BILM_CACHE to another folder")


def alone(path: Path) -> Lock:
    """Return the lock that lets one thread at a time create a path in the cache."""
    return _LOCKS.setdefault(path, Lock())


def fetch(
    url: str,
    kind: Kind,
    size: int | None = None,
    sha256: str | None = None,
    patience: Patience = PATIENCE,
) -> Path:
    """Return the local copy of a URL; download it if there is none.

    Args:
        url: http or https.
        kind: what the file must be.
        size: bytes, if known.
        sha256: hash of the content, if known.
        patience: how long the server may take.
    Raises: WeightsError if the download fails, takes too long, is cut short or is not what was
        expected; OSError for the disk. After an error there is no file under the final name.
    """
    target = cached(url) / _file_name(url)
    if target.exists():
        return target
    with alone(target):
        if not target.exists():  # else another thread has downloaded it in the meantime
            make_folder(target.parent)
            logging.info("%s: downloading to %s", url, target.parent)
            _download(url, target, kind, size, sha256, patience)
    return target


def _file_name(url: str) -> str:
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError as error:
        raise WeightsError(f"{url}: cannot be downloaded: {error}") from error
    return name[-100:] if name not in ("", "..") else "file"


def _download(
    url: str, target: Path, kind: Kind, size: int | None, sha256: str | None, patience: Patience
) -> None:
    with replacing(target) as part:
        digest, n_bytes = hashlib.sha256(), 0
        with open(part, "wb") as file:
            for piece in pieces(url, min(kind.max_bytes, size or kind.max_bytes), patience):
                file.write(piece)
                digest.update(piece)
                n_bytes += len(piece)
        if size is not None and n_bytes != size:
            raise WeightsError(f"{url}: received {n_bytes:,} bytes, expected {size:,}; cut short?")
        if sha256 is not None and digest.hexdigest() != sha256:
            raise WeightsError(f"{url}: SHA-256 is {digest.hexdigest()}, expected {sha256}")
        if not kind.is_whole(part):
            with open(part, "rb") as file:
                start = file.read(20)
            raise WeightsError(
                f"{url}: received {n_bytes:,} bytes that start with {start!r}, expected {kind.name}"
            )
