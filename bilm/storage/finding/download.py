"""Downloads into the cache.

requests reads web servers, and fsspec object stores: it would read web servers with aiohttp, which
only the extra `remote` installs. huggingface_hub, which reads `HF_ENDPOINT` and `HF_TOKEN`,
downloads models from the Hugging Face Hub or a compatible server.
"""

import glob
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from absl import logging

from bilm.errors import WeightsError
from bilm.storage.finding.cache import cached, filled
from bilm.storage.formats import find
from bilm.support.files import replacing, sha256_of
from bilm.support.imports import optional
from bilm.support.model_files import CARD
from bilm.support.progress import Progress
from bilm.support.remote import RemoteError, naming, reading, stat
from bilm.support.urls import WEB, is_url, masked, name_of, scheme_of

SECONDS = 30  # to connect, and between two pieces
RETRIES = 3  # after a lost connection or an error of the server, also in the middle of a file
BUSY = (413, 429, 500, 502, 503, 504)  # answers that may differ later
LONGEST_WAIT = 60  # seconds
COPY_BYTES = 1 << 20
MISSING = (404, 410)  # answers of a web server that does not have a file
HUB = "hf:"  # prefix of the names of models on the Hugging Face Hub
HUB_NAME = re.compile(rf"{HUB}([\w.-]+/[\w.-]+)(?:@(\S+))?", re.ASCII)


class NotFoundError(WeightsError):
    """A web server has answered that it does not have a file."""


def local_copy(path: str | Path) -> str | Path:
    """Return a path unchanged, or the local copy of a URL: see `fetch`."""
    return fetch(path) if is_url(path) else path


def fetch(
    url: str,
    check: Callable[[Path], object] = Path.exists,
    sha256: str | None = None,
    name: str | None = None,
) -> Path:
    """Return the local copy of a URL; download it if it is missing.

    Args:
        check: function that raises BilmError if the file is not whole or of another kind.
        sha256: its SHA-256, if it is known.
        name: the name that the user requested, if it was not the URL.
    Raises: NotFoundError if a web server does not have the file; WeightsError, RemoteError.
    """

    def fill(target: Path) -> dict[str, str | None]:
        logging.info("%s: downloading to %s", masked(url), target.parent)
        with replacing(target) as part, _explaining(url, part):
            _receive(url, part)
            received = sha256_of(part)
            if sha256 not in (None, received):
                raise WeightsError(f"received a file of SHA-256 {received}, expected {sha256}")
            check(part)
        return {"sha256": received}

    return filled(copy_of(url), name or url, fill)


@contextmanager
def _explaining(url: str, part: Path) -> Iterator[None]:
    """Turn errors of requests and checks in the block into one line that names the URL."""
    try:
        yield
    except RemoteError:  # names the URL
        raise
    except (OSError, ValueError) as error:
        cause = getattr(error.args[0], "reason", None) if error.args else None
        reason = " ".join(str(cause or error).split()).replace(str(part), "the downloaded file")
        answer = getattr(error, "response", None)
        is_missing = answer is not None and answer.status_code in MISSING
        raise (NotFoundError if is_missing else WeightsError)(
            f"{masked(url)}: not in the cache, and cannot be downloaded: {masked(reason)}"
        ) from error


def copy_of(url: str) -> Path:
    """Return the path of the local copy of a URL, in object stores of its present version."""
    key = url if scheme_of(url) in WEB else f"{url}\0{stat(url)}"
    return cached(key) / (name_of(url)[-100:] or "file")


def _receive(url: str, path: Path) -> None:
    """Write a remote file to a local one. Raises: RemoteError, requests.RequestException."""
    if scheme_of(url) not in WEB:
        with reading(url) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file, COPY_BYTES)
        return

    import requests
    from urllib3.exceptions import MaxRetryError

    lost = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError
    headers = {"Accept-Encoding": "identity"}
    wait = 0
    for attempt in range(RETRIES + 1):
        time.sleep(wait)
        wait = attempt + 1
        try:
            with requests.get(url, stream=True, timeout=SECONDS, headers=headers) as answer:
                if answer.status_code in BUSY and attempt < RETRIES:
                    requested = answer.headers.get("Retry-After", "")  # seconds, or a date
                    if requested.isdigit():
                        wait = min(int(requested), LONGEST_WAIT)
                    continue
                answer.raise_for_status()
                n_bytes = int(answer.headers.get("Content-Length", 0)) or None
                log = Progress("downloading", "bytes", n_bytes)
                with open(path, "wb") as file:
                    for piece in answer.iter_content(COPY_BYTES):
                        file.write(piece)
                        log.add(len(piece))
                return
        except lost as error:
            has_connected = not isinstance(error.args[0], MaxRetryError)
            if attempt == RETRIES or not has_connected:  # a network is missing, or the server
                raise


def snapshot(name: str) -> Path:
    """Return the folder of the model `hf:owner/name[@revision]`, which is downloaded once. Raises:
    BilmError if huggingface_hub is missing, or if bilm cannot download or read the model."""
    match = HUB_NAME.fullmatch(name)
    if match is None:
        raise WeightsError(f"{name}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    repository, revision = match.groups()

    def fill(folder: Path) -> dict[str, str | None]:
        library = optional("huggingface_hub", "hub", name)
        logging.info("%s: downloading to %s", name, folder)
        part = folder.with_name("part")  # where huggingface_hub continues an interrupted download
        with naming(name, "downloaded", WeightsError):
            info = library.HfApi().model_info(repository, revision=revision)
            paths = [PurePath(file.rfilename) for file in info.siblings or ()]
            _, chosen = find(paths, name)
            patterns = [glob.escape(path.as_posix()) for path in (*chosen, PurePath(CARD))]
            library.snapshot_download(
                repository, revision=info.sha, allow_patterns=patterns, local_dir=part
            )
        part.replace(folder)
        return {"revision": info.sha}

    return filled(cached(name) / "model", name, fill)
