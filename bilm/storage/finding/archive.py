"""Reads chosen members of ZIP and tar archives from untrusted sources."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple, cast

from bilm.errors import BilmError, WeightsError
from bilm.support.files import replacing

MAX_BYTES = 8 << 30  # limit for the files of a model; the largest published weights have 0.4 GB
COPY_BYTES = 1 << 20
UNPACKING_ERRORS = (  # OSError: damaged gzip, an offset outside the file, or a full disk
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,  # an encrypted file
    ValueError,
)


class Member(NamedTuple):
    """A file in an archive: its size in bytes, and a function that opens it."""

    size: int
    open: Callable[[], IO[bytes]]


class Archive:
    """An open archive.

    Args:
        path: the file, for messages.
        members: the regular files in it, by name; the last one of several of the same name counts.
    Attributes: `members`, by path.
    """

    def __init__(self, path: Path, members: Iterable[tuple[str, Member]]):
        self.path = path
        self.members: dict[PurePath, Member] = {}
        for name, member in members:
            place = PureWindowsPath(name)  # splits at either kind of slash
            if place.anchor or ".." in place.parts:
                raise WeightsError(f"{path}: {name} is a path outside the archive")
            self.members[PurePosixPath(place.as_posix())] = member

    def copy(self, chosen: dict[str, PurePath], folder: Path) -> None:
        """Copy some members to a folder, each whole or not at all, in reverse order.

        Args:
            chosen: maps each file name in the folder to the path of a member.
            folder: the folder.
        Raises: WeightsError if they are too large.
        """
        n_bytes = sum(self.members[place].size for place in chosen.values())
        if n_bytes > MAX_BYTES:
            raise WeightsError(
                f"{self.path}: the model has {n_bytes:,} bytes, expected at most {MAX_BYTES:,}"
            )
        for name, place in reversed(chosen.items()):
            with (
                self.members[place].open() as file,
                replacing(folder / name) as temporary,
                open(temporary, "wb") as out,
            ):
                shutil.copyfileobj(file, out, COPY_BYTES)  # at most the declared size


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
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive; verify the checksum of a compressed tar archive.

    Raises: WeightsError if it is damaged, also in the block.
    """
    try:
        if _is_tar(path):
            with tarfile.open(path) as tar:
                files = [member for member in tar if member.isreg()]
                content = cast(IO[bytes], tar.fileobj)
                while content.read(COPY_BYTES):  # gzip's checksum is at the end of the file
                    pass
                extract = cast(Callable[..., IO[bytes]], tar.extractfile)  # not None: regular files
                yield Archive(path, ((m.name, Member(m.size, partial(extract, m))) for m in files))
        else:
            with zipfile.ZipFile(path) as file:
                infos = (info for info in file.infolist() if not info.is_dir())
                opened = ((i.filename, Member(i.file_size, partial(file.open, i))) for i in infos)
                yield Archive(path, opened)
    except BilmError:
        raise
    except UNPACKING_ERRORS as error:
        raise WeightsError(f"{path}: cannot be unpacked: {error}") from error


def check_archive(path: Path) -> None:
    """Read an archive to verify its checksums. Raises: WeightsError if it is damaged."""
    with open_archive(path) as archive:
        for member in archive.members.values():
            with member.open() as file:
                while file.read(COPY_BYTES):
                    pass
