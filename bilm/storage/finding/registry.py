"""The names of models: those in the package, and published ones with their addresses.

`models.json` lists the published models. Addresses, sizes and hashes are those that the `source` of
each model states; the files themselves were not available when this was written.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

from absl import logging

from bilm.errors import WeightsError
from bilm.storage.finding import hub
from bilm.storage.finding.cache import make_folder
from bilm.storage.finding.download import ARCHIVE, OPTIONS, WEIGHTS, Kind, copy_of, fetch
from bilm.storage.finding.web import PATIENCE


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


class Published(NamedTuple):
    """A published model.

    Fields:
        language: the language of its training text.
        corpus, licence: the training text and the licence; None if the source does not state them.
        citation: the publication to cite.
        source: the page that states the addresses.
        versions: the same model in several layouts, tried in this order: options and weights, or
            an archive.
    """

    language: str
    corpus: str | None
    licence: str | None
    citation: str
    source: str
    versions: tuple[tuple[File, ...], ...]


class Unavailable(WeightsError):
    """No address has a file.

    Args:
        name: the requested name.
        reasons: one text for each address.
    """

    def __init__(self, name: str, reasons: Sequence[str]):
        super().__init__(f"{name}: no address works: {'; '.join(reasons)}")
        self.reasons = reasons


KINDS = {"options": OPTIONS, "weights": WEIGHTS, "archive": ARCHIVE}


def _read() -> dict[str, Published]:
    """Return the published models of `models.json`, by name."""

    def file(stored: dict[str, Any]) -> File:
        kind, urls = KINDS[stored["kind"]], tuple(stored["urls"])
        return File(kind, urls, stored.get("size"), stored.get("sha256"))

    def model(stored: dict[str, Any]) -> Published:
        versions = tuple(tuple(map(file, version)) for version in stored.pop("versions"))
        return Published(**stored, versions=versions)

    entries = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
    return {name: model(stored) for name, stored in entries.items()}


MODELS = _read()
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
    if name.startswith("nlpl:"):
        return (_in_a_collection(_nlpl(name), name),)
    return _published(name, MODELS[name].versions) if name in MODELS else None


def addresses(model: Published) -> list[tuple[str, int | None]]:
    """Return the addresses of a model and the expected sizes in bytes, in order."""
    files = (file for version in model.versions for file in version)
    return [(url, file.size) for file in files for url in file.urls]


def near(name: str) -> str:
    """Return a hint for an error message: the most similar name, if any, and all names."""
    close = difflib.get_close_matches(str(name), names(), 1)
    known = ", ".join([*names(), *PATTERNS])
    return f"did you mean {close[0]}? Names: {known}" if close else f"names: {known}"


def _nlpl(name: str) -> File:
    """Return the archive of a number, which is in one of the collections."""
    number = re.fullmatch(r"nlpl:(\d{1,9})", name)
    if number is None:
        raise WeightsError(f"{name}: the number is missing, expected a name such as nlpl:144")
    return File(ARCHIVE, tuple(f"{NLPL}/{c}/{number[1]}.zip" for c in COLLECTIONS))


def _in_a_collection(file: File, name: str) -> Path:
    """Return the local copy of an archive from the first collection that contains it.

    The collections have different content, so only a missing file leads to the next one.
    """
    for url in _cached_first(file.urls):
        try:
            return fetch(url, file.kind, name=name)
        except WeightsError as error:
            cause = error.__cause__
            if not (isinstance(cause, HTTPError) and cause.code in MISSING):
                raise
    raise WeightsError(f"{name}: neither {' nor '.join(file.urls)} exists")


def _published(name: str, versions: Sequence[Sequence[File]]) -> tuple[Path, ...]:
    """Return the local copies of the first version whose files all have an address that works.

    Raises: Unavailable if no version is complete; WeightsError if the cache cannot be used.
    """
    reasons: list[str] = []
    whole = [all(any(map(_is_cached, f.urls)) for f in files) for files in versions]
    for files in sorted(versions, key=lambda files: not whole[versions.index(files)]):
        if reasons:
            logging.warning("%s: trying %s", name, files[0].urls[0])
        try:
            return tuple(_fetched(file, name) for file in files)
        except Unavailable as error:
            reasons += error.reasons
    raise Unavailable(name, reasons)


def _fetched(file: File, name: str) -> Path:
    """Return the local copy of a file, from the first address that works.

    A warning names each address that failed and the reason.

    Raises: Unavailable if all addresses fail; WeightsError if the cache cannot be used.
    """
    reasons: list[str] = []
    for url in _cached_first(file.urls):
        if reasons:
            logging.warning("%s: trying %s", name, url)
        target = copy_of(url)
        if not target.exists():
            make_folder(target.parent)  # an error of the cache does not depend on the address
        try:
            return fetch(url, file.kind, file.size, file.sha256, name, PATIENCE)
        except WeightsError as error:
            if target.exists():  # a local copy that was changed
                raise
            logging.warning("%s", error)
            reasons.append(str(error))
    raise Unavailable(name, reasons)


def _cached_first(urls: Sequence[str]) -> list[str]:
    """Return addresses, those with a local copy first, so that they also work offline."""
    return sorted(urls, key=lambda url: not _is_cached(url))


def _is_cached(url: str) -> bool:
    return copy_of(url).exists()
