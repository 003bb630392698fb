"""Reads ZIP and tar archives from untrusted sources: lists their members and unpacks some."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple, cast

from bilm.errors import WeightsError
from bilm.options.schema import MAX_BYTES as MAX_JSON_BYTES
from bilm.support.files import replacing

MAX_BYTES = 8 << 30  # limit for weights or an archive; the largest published weights have 0.4 GB
MAX_RATIO = 100  # maximum ratio of unpacked to packed size; weights hardly shrink
MAX_MEMBERS = 10_000
MIN_PACKED = 1 << 10  # bytes; a smaller packed size is treated as this one
COPY_BYTES = 1 << 20
MAX_READ = 4 << 20  # bytes of one read; a header that declares its own size may request more
UNPACKING_ERRORS = (  # OSError: an archive with an offset outside its file, or a full disk
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    UnicodeDecodeError,
    ValueError,
)


class Member(NamedTuple):
    """A file in an archive.

    Fields:
        name: its path in the archive.
        size: its declared size in bytes.
        limit: the largest size that its packed size permits.
        problem: the reason that it cannot be unpacked, None if it can.
        open: function that returns its content.
    """

    name: str
    size: int
    limit: int
    problem: str | None
    open: Callable[[], IO[bytes] | None]


def is_archive(path: Path) -> bool:
    """Return whether a file is a ZIP, tar or tar.gz archive."""
    return _is_tar(path) or _is_zip(path)


def _is_tar(path: Path) -> bool:
    """Return whether a file starts as a tar or tar.gz archive."""
    try:
        with _plain_or_gzip(path) as file:
            tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
        return True
    except (OSError, EOFError, zlib.error, tarfile.HeaderError):  # or a gzip file cut short
        return False


def _is_zip(path: Path) -> bool:
    """Return whether a file is a ZIP archive.

    A tar archive that ends with a ZIP archive, such as weights of PyTorch, has a ZIP directory at
    its end, too.
    """
    return zipfile.is_zipfile(path) and not _is_tar(path)


def is_whole(path: Path) -> bool:
    """Return whether a file is an archive whose checksums are correct.

    Raises: WeightsError if it is damaged or hostile.
    """
    if not is_archive(path):
        return False
    with open_archive(path) as archive:  # verifies the checksum of a tar.gz
        if _is_zip(path):
            archive.check_content()
    return True


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive; verify the checksum of a tar.gz.

    Raises: WeightsError if it is damaged or hostile.
    """
    try:
        if _is_zip(path):
            with zipfile.ZipFile(path) as file:
                yield Archive(path, _zip_members(file), may_repeat=False)
        else:
            with (
                _Bounded(path) as packed,
                tarfile.open(fileobj=cast(IO[bytes], packed), mode="r:") as tar,
            ):
                # "tar --update" appends new versions of files.
                archive = Archive(path, _tar_members(tar, path), may_repeat=True)
                packed.read_to_end()
                yield archive
    except WeightsError:
        raise
    except UNPACKING_ERRORS as error:
        raise WeightsError(f"{path}: cannot be unpacked: {error}") from error


class Archive:
    """An open archive.

    Args:
        path: the file, for messages.
        entries: its members, and whether each one is a folder.
        may_repeat: whether a later member replaces an earlier one of the same name.
    Attributes: `members`, by their paths in it, without folders.
    """

    def __init__(self, path: Path, entries: Iterator[tuple[Member, bool]], may_repeat: bool):
        self.path = path
        self.members: dict[PurePath, Member] = {}
        for member, is_folder in entries:
            place = PureWindowsPath(member.name)  # splits at either kind of slash
            if place.anchor or ".." in place.parts:
                raise WeightsError(f"{path}: {member.name} is a path outside the archive")
            if not is_folder:  # names are case-sensitive
                inside = PurePosixPath(place.as_posix())
                if inside in self.members and not may_repeat:
                    raise WeightsError(f"{path}: found two files {member.name}, expected one")
                self.members[inside] = member
            if len(self.members) > MAX_MEMBERS:
                raise WeightsError(f"{path}: more than {MAX_MEMBERS:,} files, expected a model")

    def check(self, chosen: list[PurePath]) -> None:
        """Check that members can be unpacked, and that they are not too large.

        Raises: WeightsError, also if the name of another member differs in case only.
        """
        room = MAX_BYTES
        alike: dict[str, list[str]] = {}
        for name in map(PurePath.as_posix, self.members):
            alike.setdefault(name.casefold(), []).append(name)
        for place in chosen:
            same = alike[place.as_posix().casefold()]
            if len(same) > 1:
                raise WeightsError(
                    f"{self.path}: found {', '.join(sorted(same))}, whose names differ in case "
                    "only; expected one of them"
                )
            member = self.members[place]
            if member.problem is not None:
                raise WeightsError(f"{self.path}: {member.name} {member.problem}")
            most = MAX_JSON_BYTES if member.name.endswith(".json") else MAX_BYTES
            limit = min(room, most, member.limit)
            if member.size > limit:
                raise WeightsError(
                    f"{self.path}: {member.name} unpacks to {member.size:,} bytes, expected at "
                    f"most {limit:,}"
                )
            room -= member.size

    def check_content(self) -> None:
        """Read the members that can be unpacked, at most `MAX_BYTES`, to verify their checksums."""
        room = MAX_BYTES
        for member in self.members.values():
            if member.problem is None and member.size <= min(room, member.limit):
                room -= member.size
                with cast(IO[bytes], member.open()) as content:
                    while content.read(COPY_BYTES):
                        pass

    def copy(self, place: PurePath, target: Path) -> None:
        """Unpack a member, whole or not at all; never more than its declared size."""
        opened = self.members[place].open()
        assert opened is not None  # `check` has refused what is not a regular file
        with replacing(target) as temporary, opened as packed, open(temporary, "wb") as out:
            shutil.copyfileobj(packed, out, COPY_BYTES)


def _zip_members(file: zipfile.ZipFile) -> Iterator[tuple[Member, bool]]:
    for info in file.infolist():
        problem = None
        if info.flag_bits & 1:
            problem = "is encrypted"
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            problem = "is compressed by a method other than deflate"
        limit = MAX_RATIO * max(info.compress_size, MIN_PACKED)
        content = partial(file.open, info)
        yield Member(info.filename, info.file_size, limit, problem, content), info.is_dir()


def _tar_members(file: tarfile.TarFile, path: Path) -> Iterator[tuple[Member, bool]]:
    limit = MAX_RATIO * max(path.stat().st_size, MIN_PACKED)
    for info in file:
        problem = None if info.isreg() and not info.issparse() else "is not a regular file"
        content = partial(file.extractfile, info)
        yield Member(info.name, info.size, limit, problem, content), info.isdir()


def _plain_or_gzip(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if is_gzip else open(path, "rb")


class _Bounded:
    """A tar or tar.gz file for `tarfile` that limits the number of bytes read."""

    def __init__(self, path: Path):
        self._path, self._file = path, _plain_or_gzip(path)
        self._limit = min(MAX_BYTES, MAX_RATIO * max(path.stat().st_size, MIN_PACKED))

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise WeightsError(f"{self._path}: one of its headers declares {size:,} bytes")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        if whence == 0:
            self._check(place)
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, place: int) -> None:
        if place > self._limit + MAX_READ:
            raise WeightsError(
                f"{self._path}: unpacks to more than the expected maximum of {self._limit:,} bytes"
            )

    def read_to_end(self) -> None:
        """Read the rest of the file: gzip's checksum of the content is at its end."""
        while self.read(COPY_BYTES):
            pass

    def __enter__(self) -> _Bounded:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
