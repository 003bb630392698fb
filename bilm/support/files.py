"""Atomic outputs: files and folders are written in a temporary folder and renamed into place, or
uploaded to a URL. Locks tell the temporary folders of running writers from those of killed ones."""

import errno
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from absl import logging

from bilm.errors import DataError
from bilm.support.remote import check_writable, upload
from bilm.support.urls import PathLike, is_url, name_of, require_local

PREFIX = ".bilm-"  # prefix of the names of temporary folders
LOCK, CONTENT = "lock", "new"  # the two entries of a temporary folder
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors that do not name a file

expanded = os.path.expanduser  # replaces a leading `~` by the home folder


@contextmanager
def replacing(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path`, or upload it, if the block succeeds.
    The new file gets the mode of the file that it replaces, which is the target of a symbolic link.
    If the process is killed, the next writer of the same path removes the temporary file."""
    target = output_path(path)
    with scratch(path) as folder:
        temporary = folder / target.name
        yield temporary
        if is_url(path):
            upload(temporary, path)
            return
        with open(temporary, "rb+") as file:  # Windows requires a writable file
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)


@contextmanager
def new_folder(path: PathLike) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path` if the block succeeds."""
    require_local(path, "a folder to write")
    target = Path(os.path.realpath(expanded(path)))
    if target.exists() and (target.is_file() or os.listdir(target)):
        raise DataError(f"{path}: exists and is not empty; choose another folder, or remove it")
    with scratch(beside(target, ".new")) as folder:
        yield folder
        os.replace(folder, target)


@contextmanager
def scratch(path: PathLike) -> Iterator[Path]:
    """Yield a new folder beside `path` for temporary files; remove it at the end. The lock in it
    ends with the process, so a folder whose lock is free is a leftover."""
    target = output_path(path)
    with _naming(path, target.parent / PREFIX):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        folder, lock = _locked_folder(target)
        try:
            with lock:
                yield folder / CONTENT
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the next writer tries again


def _locked_folder(target: Path) -> tuple[Path, AbstractContextManager]:
    while True:  # until no other writer removes the folder before it is locked
        folder = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        with suppress(FileNotFoundError):
            if (lock := try_lock(folder / LOCK)) is not None:
                (folder / CONTENT).mkdir()
                return folder, lock


def remove_leftovers(path: PathLike) -> None:
    """Remove the temporary folders of killed writers of `path`; keep those in use."""
    from filelock import FileLock

    target = output_path(path)
    for folder in target.parent.glob(f"{_prefix(target)}*"):
        if not folder.is_symlink():
            # It cannot be locked if it is in use, or another process is removing it.
            with suppress(OSError), FileLock(folder / LOCK, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def try_lock(path: Path) -> AbstractContextManager | None:
    """Lock a file until the result's block or the process ends; return None if it is locked. On a
    file system without locks, such as NFS without its lock service, log a warning instead."""
    from filelock import FileLock, Timeout

    try:
        return FileLock(path, timeout=0).acquire()
    except Timeout:
        return None
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        logging.log_first_n(
            logging.WARNING, "%s: %s; only one command may write to this folder at a time", 1,
            path.parent, os.strerror(errno.ENOLCK),
        )  # fmt: skip
        return nullcontext()


def output_path(path: PathLike) -> Path:
    """Return the file that writing to `path` replaces, after expanding `~` and following links; for
    a URL, a name in the working folder, beside which temporary files are."""
    name = os.fspath(path)
    target = Path(os.path.realpath(expanded(path)))
    if target.is_dir() or name.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, "Found a folder, expected a file name", name)
    if is_url(path):
        return beside(Path.cwd() / name_of(path), f".{_digest(path)}")
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file, so it cannot be replaced", name)
    return target


def protect(output: PathLike, *inputs: PathLike | None) -> None:
    """Check that an output replaces no input, also by another name, and that a URL is writable."""
    output_path(output)
    paths = [path for path in (output, *inputs) if path]
    places = [path if is_url(path) else os.path.realpath(expanded(path)) for path in paths]
    if places[0] in places[1:]:
        raise DataError(
            f"{output}: is also an input or another output of this command; choose another name"
        )
    if is_url(output):
        check_writable(output)


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending appended."""
    return path.with_name(path.name + ending)


def unusable(path: PathLike, problem: str, *files: str) -> str:
    """Return the message that a file, or a path that denotes several `files`, cannot be used: the
    problem, or what a clone or download has left instead of a file."""
    for file in filter(os.path.isfile, files or (path,)):  # a pipe would block
        with suppress(OSError), open(file, "rb") as content:
            problem = left_instead(content.read(512).decode("utf-8-sig", "replace")) or problem
    return f"{os.fspath(path)}: {problem}"


def left_instead(start: str) -> str | None:
    """Return what a clone or download has left instead of a file that starts so, if anything."""
    start = start.lstrip().lower()
    if start.startswith("version https://git-lfs"):
        return "a Git LFS pointer instead of the file; run git lfs pull to download it"
    if start.startswith(("<!doctype html", "<html")):
        return "an HTML page instead of the file; download the file that it shows"
    return None


def sha256_of(path: PathLike) -> str:
    """Return the SHA-256 of a file in hexadecimal, computed once for each version of the file."""
    return _sha256_of_version(os.fspath(path), version_of(path))


@functools.lru_cache(maxsize=64)
def _sha256_of_version(path: str, version: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def version_of(path: PathLike) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced or its content changes."""
    status = os.stat(path)
    # Programs such as `cp -p` set the time of the content, but not that of the status.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _prefix(target: Path) -> str:
    return f"{PREFIX}{_digest(target.name)}-"


@contextmanager
def _naming(path: PathLike, temporary: Path) -> Iterator[None]:
    """Make disk errors name the path that the user passed instead of the temporary one."""
    try:
        yield
    except OSError as error:
        name = error.filename
        is_ours = error.errno in FULL if name is None else str(name).startswith(str(temporary))
        if error.errno is None or not is_ours:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error
