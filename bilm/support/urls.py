"""URLs as names of files: which paths are URLs, and what messages show of them."""

import os
import re
from pathlib import PurePosixPath
from typing import TypeGuard

from bilm.errors import DataError

URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.I)  # a single letter is a drive of Windows
WEB = ("http", "https")
PathLike = str | os.PathLike  # a path or a URL

SECRET_KEYS = "token|key|secret|pass|pwd|auth|sig|cred|session|code"
USER_INFO = re.compile(r"(?<=://)[^/?#\s@]+@")
SECRET_VALUE = re.compile(rf"([?&;#][^=&;#\s]*(?:{SECRET_KEYS})[^=&;#\s]*=)[^&;#\s'\"]+", re.I)
FRAGMENT = re.compile(r"(://[^\s#'\"]*#)[^\s'\"]+")


def is_url(path: object) -> TypeGuard[str]:
    """Return whether a path is a URL, such as `s3://bucket/key`."""
    return isinstance(path, str) and URL.match(path) is not None


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case; "" if it is not a URL."""
    match = URL.match(url)
    return match[1].lower() if match else ""


def name_of(path: PathLike) -> str:
    """Return the last part of a path or URL, without the query of a web address."""
    if not is_url(path):
        return os.path.basename(path)
    return PurePosixPath(re.split("[?#]", path)[0] if scheme_of(path) in WEB else path).name


def masked(text: str) -> str:
    """Return a text whose URLs show no users, passwords, values of secret keys or fragments."""
    return FRAGMENT.sub(r"\1***", SECRET_VALUE.sub(r"\1***", USER_INFO.sub("***@", text)))


def require_local(path: PathLike, what: str) -> None:
    """Raise DataError if a path is a URL. `what` describes the path, such as "the run folder"."""
    if is_url(path):
        raise DataError(
            f"{masked(str(path))}: found a URL, but {what} must be a local file or folder; "
            "use a local path and copy the result afterwards"
        )
