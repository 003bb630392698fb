"""The names of models: those in the package, and published ones with their addresses.

`published.json` lists the published models: language, training text, licence, citation, the source
of these facts, and addresses in the order in which they are tried. The files themselves were not
available when it was written.
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
from bilm.storage.finding.download import ARCHIVE, OPTIONS, WEIGHTS, Kind, copy_of, fetch
from bilm.storage.finding.web import masked


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
        name: its name as the value of --model.
        language, code: what it reads, and the language's code of ISO 639; "protein" for proteins.
        trained_on: its training text.
        licence: None if the source does not state it.
        citation: its publication.
        source: where these facts and addresses come from.
        downloads: alternatives, tried in this order: options and weights, or one archive.
    """

    name: str
    language: str
    code: str
    trained_on: str
    licence: str | None
    citation: str
    source: str
    downloads: tuple[tuple[File, ...], ...]

    @property
    def urls(self) -> list[str]:
        """All addresses."""
        return [url for files in self.downloads for file in files for url in file.urls]


KINDS = {"options": OPTIONS, "weights": WEIGHTS, "archive": ARCHIVE}


def _read_published() -> dict[str, Published]:
    path = Path(__file__).with_name("published.json")

    def file(found: dict[str, Any]) -> File:
        kind, urls = KINDS[found["kind"]], tuple(found["urls"])
        return File(kind, urls, found.get("size"), found.get("sha256"))

    models = (
        Published(**{**one, "downloads": tuple(tuple(map(file, f)) for f in one["downloads"])})
        for one in json.loads(path.read_text("utf-8"))
    )
    return {model.name: model for model in models}


MODELS = _read_published()
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
        return (_fetched(_nlpl(name), name, same=False),)
    return _first_available(MODELS[name]) if name in MODELS else None


def near(name: str) -> str:
    """Return a hint for an error message: the most similar name, if any, and all names."""
    close = difflib.get_close_matches(str(name), names(), 1)
    known = ", ".join([*names(), *PATTERNS])
    return f"did you mean {close[0]}? Names: {known}" if close else f"names: {known}"


def _first_available(model: Published) -> tuple[Path, ...]:
    """Return the local copies of a model's files, of the first alternative that is available."""

    def is_cached(files: tuple[File, ...]) -> bool:
        return all(any(copy_of(url).exists() for url in file.urls) for file in files)

    failed: list[WeightsError] = []
    for files in sorted(model.downloads, key=lambda files: not is_cached(files)):
        try:
            return tuple(_fetched(file, model.name) for file in files)
        except WeightsError as error:
            failed.append(error)
            if len(failed) < len(model.downloads):
                logging.warning("%s; trying another address", error)
    if len(failed) == 1:
        raise failed[0]
    raise WeightsError(f"{model.name}: no address works: {'; '.join(map(str, failed))}")


def _nlpl(name: str) -> File:
    """Return the archive of a number, which is in one of the collections."""
    number = re.fullmatch(r"nlpl:(\d{1,9})", name)
    if number is None:
        raise WeightsError(f"{name}: the number is missing, expected a name such as nlpl:144")
    return File(ARCHIVE, tuple(f"{NLPL}/{c}/{number[1]}.zip" for c in COLLECTIONS))


def _fetched(file: File, name: str, same: bool = True) -> Path:
    """Return the local copy of a file, from the first address that works.

    Args:
        file: the file.
        name: the name that the user requested.
        same: whether all addresses have the same content, so that any failure leads to the next
            one. Otherwise only a missing file does.
    Raises: WeightsError, naming every address that was tried and why it failed.
    """
    urls = sorted(file.urls, key=lambda url: not copy_of(url).exists())
    failed: list[WeightsError] = []
    for url in urls:  # cached first; they also work offline
        try:
            return fetch(url, file.kind, file.size, file.sha256, name)
        except WeightsError as error:
            if not (same or _is_missing(error)) or len(urls) == 1:
                raise
            failed.append(error)
            if same and len(failed) < len(urls):
                logging.warning("%s; trying %s", error, masked(urls[len(failed)]))
    if not same:
        raise WeightsError(f"{name}: neither {' nor '.join(urls)} exists")
    raise WeightsError(f"{name}: no address works: {'; '.join(map(str, failed))}")


def _is_missing(error: WeightsError) -> bool:
    """Return whether a server has answered that a file does not exist."""
    return isinstance(error.__cause__, HTTPError) and error.__cause__.code in MISSING


def matching(language: str | None = None) -> Sequence[Published]:
    """Return the published models, or those of a language, given by name or code.

    Raises: WeightsError if there are none.
    """
    found = [
        model
        for model in MODELS.values()
        if language is None or language.casefold() in (model.language.casefold(), model.code)
    ]
    if not found:
        known = sorted({f"{model.language} ({model.code})" for model in MODELS.values()})
        raise WeightsError(f"{language}: no published model; languages: {', '.join(known)}")
    return found
