"""The names of packaged and published models. The addresses of the latter are in `published.json`;
the files themselves were not available when it was written.
"""

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.errors import WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding.archive import check_archive
from bilm.storage.finding.download import HUB, NotFoundError, copy_of, fetch, snapshot
from bilm.storage.stored_tensors import hdf5_tensors
from bilm.support.urls import is_url


class Published(NamedTuple):
    """A published model."""

    name: str  # as the value of --model
    language: str
    code: str  # of ISO 639; "protein" for proteins
    trained_on: str
    licence: str | None
    citation: str
    source: str  # of these facts and addresses
    # Alternatives, tried in this order: the URLs of options and weights, or of one archive, or a
    # name of the Hugging Face Hub.
    addresses: Sequence[Sequence[str]]
    size: int | None = None  # of the weights, in bytes
    sha256: str | None = None  # of the weights; without it, they are unverified


PACKAGED = Path(__file__).resolve().parents[2] / "models"  # exports
_published = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))
MODELS = {model["name"]: Published(**model) for model in _published}
# A module's URL is a web page; its archive is the page with a query, or below the second address.
TFHUB, TFHUB_FILES = "https://tfhub.dev", "https://storage.googleapis.com/tfhub-modules"
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)


def packaged() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


def local_files(name: str) -> Sequence[Path]:
    """Return the local paths of options and weights, or of one folder or archive, that a name or
    URL denotes. Raises: WeightsError for an unknown name; BilmError, with that of each address."""
    if name in packaged():
        return [packaged()[name]]
    alternatives = _addresses(name)
    if not alternatives:
        if is_url(name):
            return [fetch(name, check_archive)]
        names = [*packaged(), *MODELS]
        similar = difflib.get_close_matches(name, names, 1)
        listed = ", ".join([*names, "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"])
        raise WeightsError(
            f"{name}: found neither a file or folder of this path nor a model of this name; "
            + (f"did you mean {similar[0]}? Names: {listed}" if similar else f"names: {listed}")
        )
    address = alternatives[0][0]
    if address.startswith(HUB):
        return [snapshot(address)]
    failed = []
    # Cached ones first, which also works offline.
    for urls in sorted(alternatives, key=lambda urls: not all(copy_of(u).exists() for u in urls)):
        try:
            if len(urls) == 1:
                return [fetch(urls[0], check_archive, name=name)]
            options, weights = urls
            options_file = fetch(options, read_object, name=name)
            return [options_file, fetch(weights, hdf5_tensors, MODELS[name].sha256, name)]
        except WeightsError as error:
            failed.append(str(error))
            # A number of the other collection is another model.
            if name.startswith("nlpl:") and not isinstance(error, NotFoundError):
                break
    raise WeightsError(f"{name}: no address works: {'; '.join(failed)}")


def _addresses(name: str) -> Sequence[Sequence[str]]:
    """Return the addresses of a published model: see `Published`; empty for an unknown name."""
    if name in MODELS:
        return MODELS[name].addresses
    if name.startswith(HUB):
        return [[name]]
    if number := re.fullmatch(r"nlpl:(\d{1,9})", name):
        return [[f"{NLPL}/{collection}/{number[1]}.zip"] for collection in COLLECTIONS]
    if module := re.fullmatch(rf"{re.escape(TFHUB)}/([\w-]+/[\w/-]+/\d+)", name):
        return [[f"{name}?tf-hub-format=compressed"], [f"{TFHUB_FILES}/{module[1]}.tar.gz"]]
    return []
