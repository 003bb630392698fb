"""The names of models: those in the package, and published ones with their addresses.

Addresses, sizes and hashes of published files are those that their publishers state, see
`docs/models.md`; the files themselves were not available when this was written.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

from bilm.errors import WeightsError
from bilm.storage.finding import hub
from bilm.storage.finding.download import ARCHIVE, OPTIONS, WEIGHTS, Kind, copy_of, fetch


class File(NamedTuple):
    """A published file.

    Fields:
        kind: the kind of file.
        urls: its addresses, tried in this order.
        size, sha256: size in bytes and SHA-256; None if they are unknown.
    """

    kind: Kind
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None


def _english(name: str, size: int | None = None, sha256: str | None = None) -> tuple[File, File]:
    base = f"https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/{name}/elmo_{name}"
    weights = File(WEIGHTS, (f"{base}_weights.hdf5",), size, sha256)
    return File(OPTIONS, (f"{base}_options.json",)), weights


MODELS: dict[str, tuple[File, ...]] = {  # options and weights, or an archive
    "small": _english(
        "2x1024_128_2048cnn_1xhighway",
        54_402_456,
        "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229",
    ),
    "medium": _english("2x2048_256_2048cnn_1xhighway"),
    "original": _english("2x4096_512_2048cnn_2xhighway"),
    "original_5.5b": _english("2x4096_512_2048cnn_2xhighway_5.5B"),
    "seqvec": (File(ARCHIVE, ("https://rostlab.org/~deepppi/seqvec.zip",)),),  # its README
}
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)
PACKAGED = Path(__file__).resolve().parents[2] / "models"
PATTERNS = "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"
MISSING = (404, 410)  # HTTP statuses of a file that does not exist


def packaged() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


def names() -> list[str]:
    """Return all fixed names; `PATTERNS` lists the names with a variable part."""
    return [*packaged(), *MODELS]


def looked_up(name: str) -> tuple[Path, ...] | None:
    """Return the paths of a named model: options and weights, or one folder or archive.

    Published models are downloaded, unless they are in the cache.

    Returns: None if the name is unknown.
    Raises: WeightsError if the model cannot be downloaded.
    """
    if name in packaged():
        return (packaged()[name],)
    if name.startswith(hub.PREFIX):
        return (hub.snapshot(name),)
    files = _nlpl(name) if name.startswith("nlpl:") else MODELS.get(name, ())
    return tuple(_fetched(file, name) for file in files) or None


def near(name: str) -> str:
    """Return a hint for an error message: the most similar name, if any, and all names."""
    close = difflib.get_close_matches(str(name), names(), 1)
    known = ", ".join([*names(), *PATTERNS])
    return f"did you mean {close[0]}? Names: {known}" if close else f"names: {known}"


def _nlpl(name: str) -> tuple[File]:
    """Return the archive of a number, which is in one of the collections."""
    number = re.fullmatch(r"nlpl:(\d{1,9})", name)
    if number is None:
        raise WeightsError(f"{name}: the number is missing, expected a name such as nlpl:144")
    return (File(ARCHIVE, tuple(f"{NLPL}/{c}/{number[1]}.zip" for c in COLLECTIONS)),)


def _fetched(file: File, name: str) -> Path:
    """Return the local copy of a file, from the first address that has it.

    With a SHA-256 all addresses have the same content, so that any failure leads to the next one.
    Otherwise only a missing file does.
    """
    urls, failed = sorted(file.urls, key=lambda url: not copy_of(url).exists()), None
    for url in urls:  # cached first; they also work offline
        try:
            return fetch(url, file.kind, file.size, file.sha256, name)
        except WeightsError as error:
            cause = error.__cause__
            is_missing = isinstance(cause, HTTPError) and cause.code in MISSING
            if len(urls) == 1 or not (is_missing or file.sha256):
                raise
            failed = failed if is_missing else error
    raise failed or WeightsError(f"{name}: neither {' nor '.join(urls)} exists")
