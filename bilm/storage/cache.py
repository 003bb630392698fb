"""The cache of downloaded and unpacked models: where it is, what is in it, where that came from.

Each entry is a folder whose name is a digest of what it holds. Its record, `bilm_source.json`, says
where that came from and, for a download, its size and SHA-256. A record outlives its files, so that
a later download of something else under the same name is noticed.
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

from bilm import schema
from bilm.errors import OptionsError, WeightsError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

RECORD = "bilm_source.json"
ENTRY = "[0-9a-f]" * 16  # the name of an entry's folder, as a pattern
DAY = 24 * 60 * 60  # seconds
_LOCKS: dict[Path, Lock] = {}


class Entry(NamedTuple):
    """What lies in the cache.

    Fields:
        folder: of the entry.
        names: how it may be called: the name or URL that was asked for, and the address.
        n_bytes: of its files.
        used: when it was last used, in seconds since 1970.
    """

    folder: Path
    names: tuple[str, ...]
    n_bytes: int
    used: float


def cache_folder() -> Path:
    """Return the folder of the cache: `BILM_CACHE`, or else `bilm` in the user's cache folder.

    Raises: WeightsError if the user has no home folder.
    """
    cache, home = os.environ.get("BILM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if not cache:  # its specification says to ignore a relative XDG_CACHE_HOME
        cache = Path(home if os.path.isabs(home) else "~/.cache") / "bilm"
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
    """Let one thread of one process at a time fill an entry of the cache, whose folder is created.

    Where the file system has no locks, as some network file systems, processes do the same work
    side by side: each file still comes into being whole.

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
                _lock(place, folder)
            yield
        finally:
            os.close(place)  # which unlocks it


def _lock(place: int, folder: Path) -> None:
    """Lock an open folder, after those who have it. Raises: OSError where there are no locks."""
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logging.info("%s: another process is filling it; waiting", folder)
        fcntl.flock(place, fcntl.LOCK_EX)


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of an entry; empty without one, or where it cannot be read."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        return schema.read_object(path)
    except OptionsError as error:
        logging.warning("%s; ignored", error)
        return {}


def write_record(folder: Path, source: str, compared: str, /, **what: Any) -> None:
    """Write the record of an entry; warn where an earlier record says something else.

    Args:
        folder: of the entry.
        source: what was asked for.
        compared: the key of `what` that tells one version from another.
        what: the rest of the record.
    """
    before, now = read_record(folder), what[compared]
    if before.get(compared, now) != now:
        logging.warning(
            "%s: has changed since %s: %s was %s, is %s",
            source, before.get("fetched"), compared, before[compared], now,
        )  # fmt: skip
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    schema.write(folder / RECORD, {"source": source, **what, "fetched": date})


def note_use(folder: Path) -> None:
    """Note that an entry was used now; a cache that can only be read notes nothing."""
    with suppress(OSError):
        os.utime(folder / RECORD)


def entries(pattern: str = "*", days: float = 0) -> list[Entry]:
    """Return what the cache holds, the entry used last first.

    Args:
        pattern: of a name; `*` and `?` are wildcards.
        days: for how long it was not used, at least.
    """
    found = [_entry(path) for path in cache_folder().glob(ENTRY) if path.is_dir()]
    oldest = time.time() - days * DAY
    return sorted(
        (
            entry
            for entry in found
            if entry.n_bytes
            and (not days or entry.used <= oldest)
            and any(fnmatch.fnmatchcase(name, pattern) for name in entry.names)
        ),
        key=lambda entry: -entry.used,
    )


def remove(removed: Iterable[Entry]) -> None:
    """Remove the files of entries. Their records stay. Raises: OSError."""
    for entry in removed:
        for path in _content(entry.folder):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _entry(folder: Path) -> Entry:
    record = read_record(folder)
    names = [str(record[key]) for key in ("source", "url") if key in record]
    return Entry(
        folder,
        tuple(dict.fromkeys(names or [folder.name])),
        sum(map(_size, _content(folder))),
        (folder / RECORD if record else folder).stat().st_mtime,
    )


def _content(folder: Path) -> list[Path]:
    """Return the files and folders of an entry, without its record."""
    return [path for path in folder.iterdir() if path.name != RECORD]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(p.lstat().st_size for p in files if p.is_file() and not p.is_symlink())
