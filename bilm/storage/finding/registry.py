"""The names of published models, with their addresses, from `published.json`. The files themselves
were not available when it was written.
"""

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


_published = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))
MODELS = {model["name"]: Published(**model) for model in _published}
# A module's URL is a web page; its archive is the page with a query, or below the second address.
TFHUB, TFHUB_FILES = "https://tfhub.dev", "https://storage.googleapis.com/tfhub-modules"
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)


def local_files(name: str) -> Sequence[Path] | None:
    """Return the local paths of a published model: options and weights, or one folder or archive;
    None if the name is unknown. Raises: BilmError, with the error of each address."""
    alternatives = _addresses(name)
    if not alternatives:
        return None
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
