"""Copies the model in a folder of an object store to the cache."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path, PurePath

from absl import logging

from bilm.errors import WeightsError
from bilm.storage.finding.archive import MAX_BYTES
from bilm.storage.finding.cache import alone, cached, note_use, write_record
from bilm.storage.formats.base import Format
from bilm.storage.formats.known import find, unpacked
from bilm.support.files import replacing
from bilm.support.progress import progress
from bilm.support.remote import COPY_BYTES, Stat, listed_under, open_reader
from bilm.support.urls import masked


def fetch_folder(url: str) -> Format:
    """Return the local copy of the model in a folder of an object store.

    The files are found as in a local folder. The copy belongs to the versions (ETags) of the
    objects: a changed object is downloaded again.

    Raises: RemoteError if the folder is missing or cannot be read; WeightsError if it contains no
        model, several, or too many bytes; OSError for the disk.
    """
    listed = listed_under(url)
    _, chosen = find([PurePath(name) for name in listed], masked(url))
    stats = {name: listed[place.as_posix()] for name, place in chosen.items()}
    version = _version(stats)
    folder = cached(f"{url}\0{version}")
    found = unpacked(folder)
    if found is None:
        with alone(folder):
            found = unpacked(folder)  # another process may have copied it in the meantime
            if found is None:
                _copy(url, chosen, stats, folder, version)
                found = unpacked(folder)
    if found is None:
        raise WeightsError(f"{masked(url)}: contains a checkpoint without its .index file")
    note_use(folder)
    return found


def _version(stats: dict[str, Stat]) -> str:
    """Return a digest of the versions and sizes of files."""
    lines = [f"{name}\t{size}\t{version}\n" for name, (size, version) in sorted(stats.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _copy(
    url: str, chosen: dict[str, PurePath], stats: dict[str, Stat], folder: Path, version: str
) -> None:
    """Download files. The two files that identify the model are written last."""
    n_bytes = sum(found.size or 0 for found in stats.values())
    if n_bytes > MAX_BYTES:
        raise WeightsError(
            f"{masked(url)}: the model has {n_bytes:,} bytes, expected at most {MAX_BYTES:,}"
        )
    logging.info("%s: downloading to %s", masked(url), folder)
    write_record(folder, url, "version", url=url, version=version)
    with progress("downloading", "bytes", n_bytes) as shown:
        for name, place in reversed(chosen.items()):
            source = f"{url.rstrip('/')}/{place.as_posix()}"
            with (
                replacing(folder / name) as temporary,
                open_reader(source) as packed,
                open(temporary, "wb") as out,
            ):
                shutil.copyfileobj(packed, out, COPY_BYTES)
                shown.add(out.tell())
