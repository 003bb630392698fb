"""The names of models: those that come with the package, and those that are published.

None of the published files was seen when this was written: addresses, sizes and hashes are as
their publishers state them. `docs/models.md` says where.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from urllib.error import HTTPError

from bilm.errors import WeightsError
from bilm.storage import download, hub
from bilm.storage.download import Known, copy_of, fetch

PACKAGED = Path(__file__).resolve().parents[1] / "models"
ENGLISH = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
ENGLISH_NAMES = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original_5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
# Size and SHA-256 of the published weights, where they are known.
CHECKS = {"small": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229")}
ARCHIVES = {"seqvec": "https://rostlab.org/~deepppi/seqvec.zip"}  # README of mheinzinger/SeqVec
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)
NLPL_NAME = re.compile(r"nlpl:(\d{1,9})")
PATTERNS = "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"
MISSING = (404, 410)  # what a server answers that does not have a file


def packaged() -> dict[str, Path]:
    """Return the folders of the models that come with the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


def names() -> list[str]:
    """Return every name that is written out; `PATTERNS` are those with a part to fill in."""
    return [*packaged(), *ENGLISH_NAMES, *ARCHIVES]


def looked_up(name: str) -> tuple[Path, ...] | None:
    """Return what a name stands for: options and weights, or one folder or archive.

    What is published is fetched, unless it is in the cache.

    Returns: None if there is no such name.
    Raises: WeightsError if it cannot be fetched.
    """
    if name in packaged():
        return (packaged()[name],)
    if name in ENGLISH_NAMES:
        return _english(name)
    if name in ARCHIVES:
        return (fetch(ARCHIVES[name], download.ARCHIVE, Known(name=name)),)
    if name.startswith("nlpl:"):
        return (_nlpl(name),)
    if name.startswith(hub.PREFIX):
        return (hub.snapshot(name),)
    return None


def near(name: str) -> str:
    """Return what an error adds about names: one that is near, if any, and all there are."""
    close = difflib.get_close_matches(str(name), names(), 1)
    known = ", ".join([*names(), *PATTERNS])
    return (f"did you mean {close[0]}? " if close else "") + f"Names: {known}"


def _english(name: str) -> tuple[Path, Path]:
    base = f"{ENGLISH}/{ENGLISH_NAMES[name]}/elmo_{ENGLISH_NAMES[name]}"
    known = Known(*CHECKS.get(name, (None, None)), name=name)
    return (
        fetch(f"{base}_options.json", download.OPTIONS, Known(name=name)),
        fetch(f"{base}_weights.hdf5", download.WEIGHTS, known),
    )


def _nlpl(name: str) -> Path:
    """Return the archive of a number, from the first collection that has it."""
    number = NLPL_NAME.fullmatch(name)
    if number is None:
        raise WeightsError(f"{name}: found no number, expected one such as nlpl:144")
    urls = [f"{NLPL}/{collection}/{number[1]}.zip" for collection in COLLECTIONS]
    urls.sort(key=lambda url: not copy_of(url).exists())  # offline, a copy serves
    for url in urls:
        try:
            return fetch(url, download.ARCHIVE, Known(name=name))
        except WeightsError as error:
            cause = error.__cause__
            if not (isinstance(cause, HTTPError) and cause.code in MISSING):
                raise
    raise WeightsError(f"{name}: no such model in {' or '.join(urls)}")
