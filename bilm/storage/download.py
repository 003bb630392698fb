"""Downloads into the cache, which get their final names only when they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.files import replacing
from bilm.schema import MAX_BYTES as MAX_OPTIONS_BYTES
from bilm.schema import read_object
from bilm.storage.archive import MAX_BYTES, is_archive
from bilm.storage.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.hdf5 import open_hdf5
from bilm.storage.web import PATIENCE, Patience, pieces


class Kind(NamedTuple):
    """What a download must be: a description, the largest size in bytes, and a test of the file."""

    name: str
    max_bytes: int
    is_whole: Callable[[Path], bool]


class Known(NamedTuple):
    """What is known of a file before it is downloaded: any of its bytes, its SHA-256, its name."""

    size: int | None = None
    sha256: str | None = None
    name: str | None = None  # that a user gave in place of the URL


UNKNOWN = Known()


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


def fetch(url: str, kind: Kind, known: Known = UNKNOWN, patience: Patience = PATIENCE) -> Path:
    """Return the local copy of a URL; download it if there is none.

    The size and the SHA-256 of the download are recorded beside it. A later download of the same
    URL that has others is used, with a warning.

    Args:
        url: http or https.
        kind: what the file must be.
        known: what is known of the file.
        patience: how long the server may take.
    Raises: WeightsError if the download fails, takes too long, is cut short or is not what was
        expected, or if its copy is not of the size recorded; OSError for the disk. After an error
        there is no file under the final name.
    """
    target = copy_of(url)
    if not target.exists():
        with alone(target.parent):
            if not target.exists():  # else another has downloaded it in the meantime
                logging.info("%s: downloading to %s", url, target.parent)
                _download(url, target, kind, known, patience)
    note_use(target.parent)
    n_bytes, expected = target.stat().st_size, read_record(target.parent).get("bytes")
    if expected not in (None, n_bytes):
        raise WeightsError(
            f"{target}: has {n_bytes:,} bytes, but {expected:,} were downloaded from {url}; remove "
            "it, to have it downloaded again"
        )
    return target


def copy_of(url: str) -> Path:
    """Return where the local copy of a URL is, or would be. Raises: WeightsError."""
    return cached(url) / _file_name(url)


def _file_name(url: str) -> str:
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError as error:
        raise WeightsError(f"{url}: cannot be downloaded: {error}") from error
    return name[-100:] if name not in ("", "..") else "file"


def _download(url: str, target: Path, kind: Kind, known: Known, patience: Patience) -> None:
    with replacing(target) as part:
        digest, n_bytes = hashlib.sha256(), 0
        with open(part, "wb") as file:
            for piece in pieces(url, min(kind.max_bytes, known.size or kind.max_bytes), patience):
                file.write(piece)
                digest.update(piece)
                n_bytes += len(piece)
        if known.size not in (None, n_bytes):
            raise WeightsError(
                f"{url}: received {n_bytes:,} bytes, expected {known.size:,}; cut short?"
            )
        sha256 = digest.hexdigest()
        if known.sha256 not in (None, sha256):
            raise WeightsError(f"{url}: SHA-256 is {sha256}, expected {known.sha256}")
        if not kind.is_whole(part):
            with open(part, "rb") as file:
                start = file.read(20)
            raise WeightsError(
                f"{url}: received {n_bytes:,} bytes that start with {start!r}, expected {kind.name}"
            )
        write_record(
            target.parent, known.name or url, "sha256", url=url, bytes=n_bytes, sha256=sha256
        )
