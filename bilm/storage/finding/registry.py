"""The names of published models, with their addresses.

`published.json` lists the published models: language, training text, licence, citation, the source
of these facts, and addresses in the order in which they are tried. The files themselves were not
available when it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.errors import WeightsError
from bilm.options.schema import read_object
from bilm.storage.finding import hub
from bilm.storage.finding.archive import check_archive
from bilm.storage.finding.download import copy_of, fetch
from bilm.storage.hdf5 import HDF5Tensors


class Published(NamedTuple):
    """A published model.

    Fields:
        name: its name as the value of --model.
        language, code: what it reads, and the language's code of ISO 639; "protein" for proteins.
        trained_on, licence, citation: its training text, its licence and its publication.
        source: where these facts and addresses come from.
        addresses: alternatives, tried in this order: the URLs of options and weights, or of one
            archive, or a name of the Hugging Face Hub.
        size, sha256: size in bytes and SHA-256 of the weights; without a hash, they are unverified.
    """

    name: str
    language: str
    code: str
    trained_on: str
    licence: str | None
    citation: str
    source: str
    addresses: Sequence[Sequence[str]]
    size: int | None = None
    sha256: str | None = None


_published = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))
MODELS = {model["name"]: Published(**model) for model in _published}
# A module's URL is a web page; its archive is the page with a query, or below the second address.
TFHUB, TFHUB_FILES = "https://tfhub.dev", "https://storage.googleapis.com/tfhub-modules"
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)


def looked_up(name: str) -> Sequence[Path] | None:
    """Return the paths of a published model: options and weights, or one folder or archive; None if
    the name is unknown. The files are downloaded, unless they are in the cache.

    Raises: BilmError, naming every address that was tried and why it failed.
    """
    address = MODELS[name].addresses[0][0] if name in MODELS else name
    if address.startswith("hf:"):
        return [hub.snapshot(address)]
    alternatives: Sequence[Sequence[str]]
    if number := re.fullmatch(r"nlpl:(\d{1,9})", name):
        alternatives = [[f"{NLPL}/{collection}/{number[1]}.zip"] for collection in COLLECTIONS]
    elif module := re.fullmatch(rf"{re.escape(TFHUB)}/([\w-]+/[\w/-]+/\d+)", name):
        archive = f"{TFHUB_FILES}/{module[1]}.tar.gz"
        alternatives = [[f"{name}?tf-hub-format=compressed"], [archive]]
    elif name in MODELS:
        alternatives = MODELS[name].addresses
    else:
        return None
    failed = []
    # Cached first, which also works offline.
    for urls in sorted(alternatives, key=lambda urls: not all(copy_of(u).exists() for u in urls)):
        try:
            if len(urls) == 1:
                return [fetch(urls[0], check_archive, name=name)]
            (options, weights), model = urls, MODELS[name]
            paths = [fetch(options, read_object, name=name)]
            return [*paths, fetch(weights, HDF5Tensors, model.size, model.sha256, name)]
        except WeightsError as error:
            failed.append(str(error))
            # A number of the other collection is another model.
            if number and not isinstance(error.__cause__, FileNotFoundError):
                break
    raise WeightsError(f"{name}: no address works: {'; '.join(failed)}")
