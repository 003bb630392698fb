"""Downloads into the cache. A file is renamed into place when it is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.options.schema import MAX_BYTES as MAX_OPTIONS_BYTES
from bilm.options.schema import read_object
from bilm.storage.finding.archive import MAX_BYTES, is_archive
from bilm.storage.finding.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.finding.web import PATIENCE, Patience, masked, pieces
from bilm.storage.hdf5 import open_hdf5
from bilm.support.files import replacing


class Kind(NamedTuple):
    """A kind of download: a description, the largest size in bytes, and a check of the file."""

    name: str
    max_bytes: int
    is_whole: Callable[[Path], bool]


class Known(NamedTuple):
    """Facts about a file before it is downloaded: size in bytes, SHA-256, requested name."""

    size: int | None = None
    sha256: str | None = None
    name: str | None = None  # if the user requested a name instead of the URL


UNKNOWN = Known()


def _reads(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except BilmError:
        return False
    return True


def _open_hdf5(path: Path) -> None:
    with open_hdf5(path):  # HDF5 itself detects a truncated file
        pass


OPTIONS = Kind("a JSON object", MAX_OPTIONS_BYTES, lambda path: _reads(read_object, path))
WEIGHTS = Kind("a complete HDF5 file", MAX_BYTES, lambda path: _reads(_open_hdf5, path))
ARCHIVE = Kind("a complete ZIP or tar.gz archive", MAX_BYTES, is_archive)


def fetch(url: str, kind: Kind, known: Known = UNKNOWN, patience: Patience = PATIENCE) -> Path:
    """Return the local copy of a URL; download it if it is missing.

    The size and the SHA-256 of the download are recorded beside it. A later download of the same
    URL with other content is used, with a warning.

    Args:
        url: http or https.
        kind: the expected kind of file.
        known: facts about the file.
        patience: time limits.
    Raises: WeightsError if the download fails, takes too long, is cut short or is of another kind,
        or if the local copy has another size than recorded; OSError for the disk. After an error
        no file exists under the final name.
    """
    target = copy_of(url)
    if not target.exists():
        with alone(target.parent):
            if not target.exists():  # another process may have downloaded it in the meantime
                logging.info("%s: downloading to %s", masked(url), target.parent)
                _download(url, target, kind, known, patience)
    note_use(target.parent)
    n_bytes, expected = target.stat().st_size, read_record(target.parent).get("bytes")
    if expected not in (None, n_bytes):
        raise WeightsError(
            f"{target}: has {n_bytes:,} bytes, but {expected:,} were downloaded from "
            f"{masked(url)}; remove the file to download it again"
        )
    return target


def copy_of(url: str) -> Path:
    """Return the path of a URL's local copy, whether it exists or not. Raises: WeightsError."""
    return cached(url) / _file_name(url)


def _file_name(url: str) -> str:
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError as error:
        raise WeightsError(f"{masked(url)}: cannot be downloaded: {error}") from error
    return name[-100:] if name not in ("", "..") else "file"


def _download(url: str, target: Path, kind: Kind, known: Known, patience: Patience) -> None:
    shown = masked(url)
    with replacing(target) as part:
        digest, n_bytes = hashlib.sha256(), 0
        with open(part, "wb") as file:
            for piece in pieces(url, min(kind.max_bytes, known.size or kind.max_bytes), patience):
                file.write(piece)
                digest.update(piece)
                n_bytes += len(piece)
        if known.size not in (None, n_bytes):
            raise WeightsError(
                f"{shown}: received {n_bytes:,} bytes, expected {known.size:,}; the download may "
                f"be truncated"
            )
        sha256 = digest.hexdigest()
        if known.sha256 not in (None, sha256):
            raise WeightsError(f"{shown}: SHA-256 is {sha256}, expected {known.sha256}")
        if not kind.is_whole(part):
            with open(part, "rb") as file:
                start = file.read(20)
            raise WeightsError(
                f"{shown}: received {n_bytes:,} bytes that start with {start!r}, "
                f"expected {kind.name}"
            )
        write_record(
            target.parent, known.name or url, "sha256", url=url, bytes=n_bytes, sha256=sha256
        )
