"""The cache of downloaded and unpacked models. Each entry is a folder, named by a digest of a key,
with a record of the name, path or URL that the user requested, and the SHA-256 of a download.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.support.urls import masked

RECORD, LOCK = "bilm_source.json", ".lock"
ENTRY = "[0-9a-f]" * 16  # the name of an entry's folder, as a pattern


class Entry(NamedTuple):
    """An entry of the cache: its folder, what was requested, and the size of its files."""

    folder: Path
    source: str
    n_bytes: int


def cache_folder() -> Path:
    """Return the folder of the cache: `BILM_CACHE`, or else `bilm` in the user's cache folder."""
    folder = os.environ.get("BILM_CACHE")
    if not folder:
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(home):  # XDG ignores relative paths
            home = "~/.cache"
        folder = os.path.join(home, "bilm")
    return Path(os.path.expanduser(folder))


def cached(key: str) -> Path:
    """Return the cache folder of a key, whether it exists or not."""
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return cache_folder() / digest[:16]


def filled(path: Path, source: str, fill: Callable[[Path], Mapping[str, str | None]]) -> Path:
    """Return a file or folder of an entry; if it is missing, call `fill`, which writes it, renames
    it into place and returns facts for the record, in only one thread of one process at a time.
    Secrets in the URL `source` are masked in the record. Raises: WeightsError if the cache cannot
    be written; the errors of `fill`."""
    record = path.with_name(RECORD)
    if path.exists() and record.exists():
        return path
    from filelock import FileLock

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(LOCK)).acquire()
    except OSError as error:
        raise WeightsError(
            f"{path.parent}: cannot write to the cache ({error.strerror}); set BILM_CACHE to "
            "another folder"
        ) from error
    with lock:
        # Another process may have written it in the meantime, or may have been killed after that.
        facts = {} if path.exists() else fill(path)
        if facts or not record.exists():
            schema.write(record, {"source": masked(source), **facts})
    return path


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of an entry; empty if it is missing or cannot be read."""
    try:
        return schema.read_object(folder / RECORD)
    except OptionsError:
        return {}


def entries(pattern: str = "*") -> list[Entry]:
    """Return the entries whose source matches a pattern (`*` and `?`), sorted by source."""
    matching = []
    for folder in cache_folder().glob(ENTRY):
        source = read_record(folder).get("source")
        if source is not None and fnmatchcase(source, pattern):
            n_bytes = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
            matching.append(Entry(folder, source, n_bytes))
    return sorted(matching, key=lambda entry: entry.source)
