"""The cache of downloaded and unpacked models.

Each entry is a folder whose name is a digest of its key. Its record, `bilm_source.json`, contains
its source and, for a download, the size and SHA-256. The record remains after the files are
removed, so that a later download with other content under the same name is detected.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from absl import logging

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.support.urls import masked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RECORD = "bilm_source.json"
ENTRY = "[0-9a-f]" * 16  # the name of an entry's folder, as a pattern
DAY = 24 * 60 * 60  # seconds
_LOCKS: dict[Path, Lock] = {}


class Entry(NamedTuple):
    """An entry of the cache.

    Fields:
        folder: contains its files and its record.
        names: the name or URL that was requested, and the address of the download.
        n_bytes: size of its files.
        used: time of its last use, in seconds since 1970.
    """

    folder: Path
    names: tuple[str, ...]
    n_bytes: int
    used: float


def cache_folder() -> Path:
    """Return the folder of the cache: `BILM_CACHE`, or else `bilm` in the user's cache folder.

    Raises: WeightsError if the user has no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    home = home if os.path.isabs(home) else "~/.cache"  # XDG ignores relative paths
    cache = os.environ.get("BILM_CACHE") or os.path.join(home, "bilm")
    try:
        return Path(cache).expanduser()
    except RuntimeError:
        raise WeightsError(
            f"{cache}: no home folder; set BILM_CACHE to a folder for downloads"
        ) from None


def cached(key: str) -> Path:
    """Return the cache folder of a key, whether it exists or not. Raises: WeightsError."""
    return cache_folder() / hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:16]


def make_folder(folder: Path) -> None:
    """Create a cache folder unless it exists. Raises: WeightsError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise WeightsError(f"{folder}: cannot write to the cache; set BILM_CACHE to another folder")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Create the folder of an entry and let only one thread of one process at a time fill it.

    On file systems without locks, such as some network file systems, several processes may do the
    same work; each file is still renamed into place when it is complete.

    Raises: WeightsError if the cache cannot be written.
    """
    with _LOCKS.setdefault(folder, Lock()):
        make_folder(folder)
        if fcntl is None:
            yield
            return
        place = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):
                try:
                    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    logging.info("%s: waiting for another process that is filling it", folder)
                    fcntl.flock(place, fcntl.LOCK_EX)
            yield
        finally:
            os.close(place)  # which unlocks it


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of an entry; empty if it is missing or cannot be read."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        return schema.read_object(path)
    except OptionsError as error:
        logging.warning("%s; ignored", error)
        return {}


def write_record(folder: Path, source: str, compared: str, /, **what: Any) -> None:
    """Write the record of an entry; warn if an earlier record has another version.

    Args:
        folder: folder of the entry.
        source: the name, path or URL that the user requested.
        compared: the key of `what` whose value differs between versions.
        what: the rest of the record. Secrets in URLs are masked.
    """
    before, now = read_record(folder), what[compared]
    if before.get(compared, now) != now:
        logging.warning(
            "%s: has changed since %s: %s was %s, is %s",
            masked(source), before.get("fetched"), compared, before[compared], now,
        )  # fmt: skip
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    what = {key: masked(value) if isinstance(value, str) else value for key, value in what.items()}
    schema.write(folder / RECORD, {"source": masked(source), **what, "fetched": date})


def note_use(folder: Path) -> None:
    """Record that an entry was used now, unless the cache is read-only."""
    with suppress(OSError):
        os.utime(folder / RECORD)


def entries(pattern: str = "*", days: float = 0) -> list[Entry]:
    """Return the entries of the cache, the most recently used one first.

    Folders without a record, and links, are not entries: bilm did not create them.

    Args:
        pattern: selects entries by name; `*` and `?` are wildcards.
        days: select only entries unused for this number of days.
    """
    found = []
    for folder in cache_folder().glob(ENTRY):
        record = {} if folder.is_symlink() else read_record(folder)
        names = dict.fromkeys(masked(str(record[k])) for k in ("source", "url") if k in record)
        n_bytes = sum(map(_size, _content(folder))) if "source" in record else 0
        if n_bytes and any(fnmatch.fnmatchcase(name, pattern) for name in names):
            used = (folder / RECORD).stat().st_mtime
            found.append(Entry(folder, tuple(names), n_bytes, used))
    oldest = time.time() - days * DAY
    recent = sorted(found, key=lambda entry: -entry.used)
    return [entry for entry in recent if not days or entry.used <= oldest]


def remove(removed: Iterable[Entry]) -> None:
    """Remove the files of entries, without their records. Raises: OSError."""
    for entry in removed:
        for path in _content(entry.folder):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _content(folder: Path) -> list[Path]:
    """Return the files and folders of an entry except its record."""
    return [path for path in folder.iterdir() if path.name != RECORD]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(p.lstat().st_size for p in files if p.is_file() and not p.is_symlink())
