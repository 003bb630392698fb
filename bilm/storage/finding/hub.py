"""Models on the Hugging Face Hub or a compatible server, named `hf:owner/name[@revision]`.

huggingface_hub downloads them and reads `HF_ENDPOINT`, `HF_TOKEN` and its other variables. A
revision is downloaded once and then read without a network connection.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from absl import logging

from bilm.errors import WeightsError
from bilm.storage.finding.archive import MAX_BYTES
from bilm.storage.finding.cache import alone, cached, note_use, read_record, write_record
from bilm.storage.finding.web import PATIENCE, masked
from bilm.storage.formats.known import find
from bilm.support.model_files import CARD

PREFIX = "hf:"


def snapshot(name: str) -> Path:
    """Return the folder that contains the files of a model; download them if they are missing.

    Args:
        name: `hf:owner/name`, followed by `@` and a branch, tag or commit other than main.
    Raises: WeightsError if huggingface_hub is missing or the download fails, if bilm cannot
        read the model, or if it is too large.
    """
    parts = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@(\S+))?", name, re.ASCII)
    if parts is None:
        raise WeightsError(f"{name}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    entry = cached(name)
    found = _there(entry)
    if found is None:
        with alone(entry):
            found = _there(entry) or _downloaded(name, parts[1], parts[2], entry)
    note_use(entry)
    return found


def _there(entry: Path) -> Path | None:
    """Return the folder of an earlier download, if it is complete."""
    record = read_record(entry)
    folder, files = entry / str(record.get("folder", "")), record.get("files")
    whole = isinstance(files, list) and all((folder / str(name)).is_file() for name in files)
    return folder if whole else None


def _downloaded(name: str, repository: str, revision: str | None, entry: Path) -> Path:
    try:
        import huggingface_hub as library
    except ImportError:
        raise WeightsError(
            f"{name}: needs huggingface_hub: pip install 'bilm-keras[hub]'"
        ) from None
    with _naming(name):
        info = library.HfApi().model_info(
            repository, revision=revision, files_metadata=True, timeout=PATIENCE.seconds
        )
    sizes = {PurePath(file.rfilename): file.size or 0 for file in info.siblings or ()}
    _, found = find(list(sizes), Path(name))
    files = {*found.values()} | {PurePath(CARD)} & set(sizes)
    n_bytes = sum(sizes[file] for file in files)
    if n_bytes > MAX_BYTES:
        raise WeightsError(f"{name}: has {n_bytes:,} bytes, expected at most {MAX_BYTES:,}")
    logging.info("%s: downloading %.1f MB to %s", name, n_bytes / 1e6, entry)
    chosen = sorted(file.as_posix() for file in files)
    with _naming(name):
        folder = library.snapshot_download(
            repository,
            revision=info.sha,
            cache_dir=entry,
            allow_patterns=[glob.escape(file) for file in chosen],
        )
    where: dict[str, Any] = {"folder": str(Path(folder).relative_to(entry)), "files": chosen}
    write_record(entry, name, "revision", revision=info.sha, bytes=n_bytes, **where)
    return Path(folder)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Convert errors of the library, which have no common base class, to WeightsError."""
    try:
        yield
    except Exception as error:
        reason = masked(" ".join(str(error).split())) or type(error).__name__
        raise WeightsError(
            f"{name}: not in the cache, and cannot be downloaded: {reason[:300]}"
        ) from error
