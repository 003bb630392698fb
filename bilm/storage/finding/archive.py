"""Reads chosen members of ZIP and tar archives from untrusted sources."""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, TypeAlias

from bilm.errors import BilmError, WeightsError
from bilm.support.files import unusable

MAX_BYTES = 8 << 30  # limit for the files of a model; the largest published weights have 0.4 GB
COPY_BYTES = 1 << 20
# OSError: damaged gzip, an offset outside the file, or a full disk. RuntimeError: encrypted files.
UNPACKING_ERRORS = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, ValueError
)  # fmt: skip


class Member(NamedTuple):
    """A regular file in an archive: its size in bytes, and a function that opens it."""

    size: int
    open: Callable[[], Any]


Members: TypeAlias = Mapping[PurePath, Member]  # by path; the last one of several of one path


def is_archive(path: Path) -> bool:
    """Return whether a file is a ZIP or tar archive, which may be compressed."""
    return _is_tar(path) or zipfile.is_zipfile(path)


def _is_tar(path: Path) -> bool:
    # Checked first: a tar archive may end with a ZIP archive, such as weights of PyTorch.
    try:
        return tarfile.is_tarfile(path)
    except UNPACKING_ERRORS:
        return False


@contextmanager
def open_archive(path: Path) -> Iterator[Members]:
    """Yield the members of an archive. Raises: WeightsError if it is damaged, also in the block."""
    try:
        if _is_tar(path):
            with tarfile.open(path) as tar:
                entries = [info for info in tar if info.isreg()]
                _read_all(tar.fileobj)  # gzip's checksum is at the end of the file
                yield {
                    _place(info.name, path): Member(info.size, partial(tar.extractfile, info))
                    for info in entries
                }
        else:
            with zipfile.ZipFile(path) as file:
                yield {
                    _place(info.filename, path): Member(info.file_size, partial(file.open, info))
                    for info in file.infolist()
                    if not info.is_dir()
                }
    except BilmError:
        raise
    except UNPACKING_ERRORS as error:
        raise WeightsError(unusable(path, f"cannot be unpacked: {error}")) from error


def _place(name: str, path: Path) -> PurePath:
    """Return a member's path. Raises: WeightsError if it is outside the archive."""
    place = PureWindowsPath(name)  # splits at either kind of slash
    if place.anchor or ".." in place.parts:
        raise WeightsError(f"{path}: {name} is a path outside the archive")
    return PurePosixPath(place.as_posix())


def unpack(members: Members, home: PurePath, folder: Path) -> None:
    """Copy members, which are in the archive's folder `home`. Raises: ValueError if too large."""
    n_bytes = sum(member.size for member in members.values())
    if n_bytes > MAX_BYTES:
        raise ValueError(f"the model has {n_bytes:,} bytes, expected at most {MAX_BYTES:,}")
    for place, member in members.items():
        copy = folder / place.relative_to(home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as file, open(copy, "wb") as out:
            shutil.copyfileobj(file, out, COPY_BYTES)  # at most the declared size


def check_archive(path: Path) -> None:
    """Read an archive to verify its checksums. Raises: WeightsError if it is damaged."""
    with open_archive(path) as members:
        for member in members.values():
            with member.open() as file:
                _read_all(file)


def _read_all(file: Any) -> None:
    """Read a file to its end, which verifies its checksum."""
    while file.read(COPY_BYTES):
        pass
