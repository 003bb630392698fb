"""The names of models: those in the package, and published ones.

Addresses, sizes and hashes of published files are those that their publishers state, see
`docs/models.md`; the files themselves were not available when this was written.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from urllib.error import HTTPError

from bilm.errors import WeightsError
from bilm.storage.finding import download, hub
from bilm.storage.finding.download import Known, copy_of, fetch

PACKAGED = Path(__file__).resolve().parents[2] / "models"
ENGLISH = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
ENGLISH_NAMES = {
    "small": "2x1024_128_2048cnn_1xhighway",
    "medium": "2x2048_256_2048cnn_1xhighway",
    "original": "2x4096_512_2048cnn_2xhighway",
    "original_5.5b": "2x4096_512_2048cnn_2xhighway_5.5B",
}
# Size and SHA-256 of the published weights, if known.
CHECKS = {"small": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229")}
ARCHIVES = {"seqvec": "https://rostlab.org/~deepppi/seqvec.zip"}  # README of mheinzinger/SeqVec
NLPL, COLLECTIONS = "http://vectors.nlpl.eu/repository", (20, 11)
NLPL_NAME = re.compile(r"nlpl:(\d{1,9})")
PATTERNS = "nlpl:NUMBER", "hf:OWNER/NAME[@REVISION]"
MISSING = (404, 410)  # HTTP statuses of a file that does not exist


def packaged() -> dict[str, Path]:
    """Return the folders of the models in the package, by name."""
    return {path.name: path for path in sorted(PACKAGED.glob("[a-z0-9]*")) if path.is_dir()}


def names() -> list[str]:
    """Return all fixed names; `PATTERNS` lists the names with a variable part."""
    return [*packaged(), *ENGLISH_NAMES, *ARCHIVES]


def looked_up(name: str) -> tuple[Path, ...] | None:
    """Return the paths of a named model: options and weights, or one folder or archive.

    Published models are downloaded, unless they are in the cache.

    Returns: None if the name is unknown.
    Raises: WeightsError if the model cannot be downloaded.
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
    """Return a hint for an error message: the most similar name, if any, and all names."""
    close = difflib.get_close_matches(str(name), names(), 1)
    known = ", ".join([*names(), *PATTERNS])
    return (f"did you mean {close[0]}? " if close else "") + f"Names: {known}"


def _english(name: str) -> tuple[Path, Path]:
    base = f"{ENGLISH}/{ENGLISH_NAMES[name]}/elmo_{ENGLISH_NAMES[name]}"
    size, sha256 = CHECKS.get(name, (None, None))
    known = Known(size, sha256, name)
    return (
        fetch(f"{base}_options.json", download.OPTIONS, Known(name=name)),
        fetch(f"{base}_weights.hdf5", download.WEIGHTS, known),
    )


def _nlpl(name: str) -> Path:
    """Return the archive of a number, from the first collection that contains it."""
    number = NLPL_NAME.fullmatch(name)
    if number is None:
        raise WeightsError(f"{name}: the number is missing, expected a name such as nlpl:144")
    urls = [f"{NLPL}/{collection}/{number[1]}.zip" for collection in COLLECTIONS]
    urls.sort(key=lambda url: not copy_of(url).exists())  # cached first; they also work offline
    for url in urls:
        try:
            return fetch(url, download.ARCHIVE, Known(name=name))
        except WeightsError as error:
            cause = error.__cause__
            if not (isinstance(cause, HTTPError) and cause.code in MISSING):
                raise
    raise WeightsError(f"{name}: neither {' nor '.join(urls)} exists")
