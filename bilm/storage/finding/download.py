"""Downloads into the cache. A file is renamed into place when it is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.options.schema import MAX_BYTES as MAX_OPTIONS_BYTES
from bilm.options.schema import read_object
from bilm.storage.finding.archive import MAX_BYTES, is_whole
from bilm.storage.finding.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.finding.web import PATIENCE, Patience, pieces
from bilm.storage.hdf5 import HDF5Tensors
from bilm.support.files import replacing
from bilm.support.progress import progress
from bilm.support.remote import COPY_BYTES, open_reader, stat
from bilm.support.urls import WEB, is_url, masked, scheme_of


class Kind(NamedTuple):
    """A kind of download.

    Fields:
        name: its description in messages.
        max_bytes: the largest size accepted.
        check: function that raises BilmError or returns False if a file is not whole.
    """

    name: str
    max_bytes: int
    check: Callable[[Path], object]


OPTIONS = Kind("a JSON object", MAX_OPTIONS_BYTES, read_object)
WEIGHTS = Kind("a complete HDF5 file", MAX_BYTES, HDF5Tensors)
ARCHIVE = Kind("a complete ZIP or tar.gz archive", MAX_BYTES, is_whole)
FILE = Kind("a file", MAX_BYTES, Path.exists)


def local_copy(path: str | Path) -> str | Path:
    """Return a path unchanged, or the local copy of a URL: see `fetch`."""
    return fetch(path, FILE) if is_url(path) else path


def fetch(
    url: str,
    kind: Kind,
    size: int | None = None,
    sha256: str | None = None,
    name: str | None = None,
    patience: Patience = PATIENCE,
) -> Path:
    """Return the local copy of a URL; download it if it is missing.

    The size and the SHA-256 of the download are recorded beside it. A later download of the same
    URL with other content is used, with a warning. The copy of an object in an object store belongs
    to the object's version (ETag): if the object changes, it is downloaded again.

    Args:
        url: http, https or another scheme that `bilm.support.remote` reads.
        kind: the expected kind of file.
        size, sha256: expected size in bytes and SHA-256; None if they are unknown.
        name: the name that the user requested, if it was not the URL.
        patience: time limits.
    Raises: WeightsError if the download fails, takes too long, is cut short or is of another kind,
        or if the local copy has another size than recorded; RemoteError if an object store fails;
        OSError for the disk. After an error no file exists under the final name.
    """
    target = copy_of(url)
    if not target.exists():
        with alone(target.parent):
            if not target.exists():  # another process may have downloaded it in the meantime
                logging.info("%s: downloading to %s", masked(url), target.parent)
                _download(url, target, kind, size, sha256, name or url, patience)
    note_use(target.parent)
    n_bytes, expected = target.stat().st_size, read_record(target.parent).get("bytes")
    if expected not in (None, n_bytes):
        raise WeightsError(
            f"{target}: has {n_bytes:,} bytes, but {expected:,} were downloaded from "
            f"{masked(url)}; remove the file to download it again"
        )
    return target


def copy_of(url: str) -> Path:
    """Return the path of a URL's local copy, whether it exists or not.

    Raises: WeightsError; RemoteError if an object store does not return the object's version.
    """
    key = url if scheme_of(url) in WEB else f"{url}\0{stat(url).version}"
    return cached(key) / _file_name(url)


def _file_name(url: str) -> str:
    try:
        name = PurePosixPath(urlsplit(url).path).name
    except ValueError as error:
        raise WeightsError(f"{masked(url)}: cannot be downloaded: {error}") from error
    return name[-100:] if name not in ("", "..") else "file"


def _pieces(url: str, max_bytes: int, patience: Patience) -> Iterator[bytes]:
    """Yield the content of a URL. Raises: WeightsError, RemoteError."""
    if scheme_of(url) in WEB:
        yield from pieces(url, max_bytes, patience)
        return
    n_bytes = stat(url).size
    if (n_bytes or 0) > max_bytes:
        raise WeightsError(f"{masked(url)}: has {n_bytes:,} bytes, expected at most {max_bytes:,}")
    with open_reader(url) as file, progress("downloading", "bytes", n_bytes) as shown:
        while piece := file.read(COPY_BYTES):
            yield piece
            shown.add(len(piece))


def _download(
    url: str,
    target: Path,
    kind: Kind,
    size: int | None,
    sha256: str | None,
    source: str,
    patience: Patience,
) -> None:
    shown, digest, n_bytes = masked(url), hashlib.sha256(), 0
    with replacing(target) as part:
        with open(part, "wb") as file:
            for piece in _pieces(url, min(kind.max_bytes, size or kind.max_bytes), patience):
                file.write(piece)
                digest.update(piece)
                n_bytes += len(piece)
        if size not in (None, n_bytes):
            raise WeightsError(
                f"{shown}: received {n_bytes:,} bytes, expected {size:,}; the download may be "
                "truncated"
            )
        if sha256 not in (None, digest.hexdigest()):
            raise WeightsError(f"{shown}: SHA-256 is {digest.hexdigest()}, expected {sha256}")
        try:
            is_whole = kind.check(part) is not False
        except BilmError:
            is_whole = False
        if not is_whole:
            with open(part, "rb") as file:
                start = file.read(20)
            raise WeightsError(
                f"{shown}: received {n_bytes:,} bytes that start with {start!r}, "
                f"expected {kind.name}"
            )
        what = {"bytes": n_bytes, "sha256": digest.hexdigest()}
        write_record(target.parent, source, "sha256", url=url, **what)
