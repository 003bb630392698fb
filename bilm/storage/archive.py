"""ZIP and tar archives that may come from anywhere: what is in them, and files out of them."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, NamedTuple

from bilm.errors import WeightsError
from bilm.files import replacing
from bilm.schema import MAX_BYTES as MAX_JSON_BYTES

MAX_BYTES = 8 << 30  # of weights or an archive; the largest published weights have 0.4 GB
MAX_RATIO = 100  # of a member to its packed size; weights hardly shrink
MAX_MEMBERS = 10_000
MIN_PACKED = 1 << 10  # bytes that a small member counts for
COPY_BYTES = 1 << 20
MAX_READ = 4 << 20  # asked for at once: more is a header that states a size of its own
UNPACKING_ERRORS = (  # OSError: an archive that points outside of itself, or a full disk
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
    """A file in an archive: its name there, its size, and what it may unpack to by its packing."""

    name: str
    size: int
    limit: int
    problem: str | None  # why it cannot be taken out
    entry: zipfile.ZipInfo | tarfile.TarInfo


def is_archive(path: Path) -> bool:
    """Return whether a file is a ZIP, tar or tar.gz archive."""
    try:
        if zipfile.is_zipfile(path):
            return True
        with _plain_or_gzip(path) as file:
            tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
        return True
    except (OSError, EOFError, zlib.error, tarfile.HeaderError):  # or a gzip file cut short
        return False


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive. Raises: WeightsError for one that is damaged or made to do harm."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                yield Archive(path, file, _zip_members(file))
        else:
            with _Bounded(path) as packed, tarfile.open(fileobj=packed, mode="r:") as file:
                yield Archive(path, file, _tar_members(file, path))
    except WeightsError:
        raise
    except UNPACKING_ERRORS as error:
        raise WeightsError(f"{path}: cannot be unpacked: {error}") from error


class Archive:
    """An open archive. Attributes: `members`, by their paths in it."""

    def __init__(
        self, path: Path, file: zipfile.ZipFile | tarfile.TarFile, members: Iterator[Member]
    ):
        self.path, self._file = path, file
        self.members: dict[PureWindowsPath, Member] = {}
        for member in members:
            place = PureWindowsPath(member.name)  # it knows either kind of slash
            if place.anchor or ".." in place.parts:
                raise WeightsError(f"{path}: {member.name} is a path out of the archive")
            self.members[place] = member
            if len(self.members) > MAX_MEMBERS:
                raise WeightsError(f"{path}: more than {MAX_MEMBERS:,} files, expected a model")

    def check(self, chosen: list[PureWindowsPath]) -> None:
        """Refuse members that cannot be taken out, or are too large. Raises: WeightsError."""
        room = MAX_BYTES
        for member in (self.members[place] for place in chosen):
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

    def copy(self, place: PureWindowsPath, target: Path) -> None:
        """Unpack a member, whole or not at all; never more than its stated size."""
        entry = self.members[place].entry
        is_zip = isinstance(self._file, zipfile.ZipFile)
        opened = self._file.open(entry) if is_zip else self._file.extractfile(entry)
        with replacing(target) as temporary, opened as packed, open(temporary, "wb") as out:
            shutil.copyfileobj(packed, out, COPY_BYTES)


def _zip_members(file: zipfile.ZipFile) -> Iterator[Member]:
    for info in file.infolist():
        problem = None
        if info.flag_bits & 1:
            problem = "is encrypted"
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            problem = "is not packed by deflate"
        limit = MAX_RATIO * max(info.compress_size, MIN_PACKED)
        if not info.is_dir() or PureWindowsPath(info.filename).anchor or ".." in info.filename:
            yield Member(info.filename, info.file_size, limit, problem, info)


def _tar_members(file: tarfile.TarFile, path: Path) -> Iterator[Member]:
    limit = MAX_RATIO * max(path.stat().st_size, MIN_PACKED)
    for info in file:
        problem = None if info.isreg() and not info.issparse() else "is a link or no plain file"
        if not info.isdir() or ".." in info.name or PureWindowsPath(info.name).anchor:
            yield Member(info.name, info.size, limit, problem, info)


def _plain_or_gzip(path: Path) -> BinaryIO:
    with open(path, "rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return (gzip.open if is_gzip else open)(path, "rb")


class _Bounded:
    """A tar or tar.gz file as `tarfile` reads it: no more of it than the limits allow."""

    def __init__(self, path: Path):
        self._path, self._file = path, _plain_or_gzip(path)
        self._limit = min(MAX_BYTES, MAX_RATIO * max(path.stat().st_size, MIN_PACKED))

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_READ:
            raise WeightsError(f"{self._path}: a header in it states {size:,} bytes")
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
                f"{self._path}: unpacks to more than {self._limit:,} bytes, the most expected"
            )

    def __enter__(self) -> _Bounded:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
