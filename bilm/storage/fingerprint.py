"""The identity of a model's files: a SHA-256 of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from bilm.errors import WeightsError
from bilm.support.files import sha256_of, version_of


def fingerprint(files: Iterable[Path]) -> str:
    """Return a SHA-256 of the content of files. Raises: WeightsError if one was removed."""
    try:
        digests = [_digest_of_version(file, *version_of(file)) for file in files]
    except FileNotFoundError as error:
        raise changed(error.filename) from error
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def changed(what: object) -> WeightsError:
    """Return the error of a file or model that has changed while it was read."""
    return WeightsError(f"{what}: replaced or removed while the model was read; repeat the command")


@lru_cache(maxsize=64)
def _digest_of_version(path: Path, *version: int) -> str:
    """Return the digest of a file's content, computed once for each version of the file."""
    return sha256_of(path)
