"""Atomic outputs: files and folders are written in a temporary folder and renamed into place.

An output may be a URL: its temporary files are in the working folder, and the complete file is
uploaded.

Locks on files tell the folders of running writers from those of killed ones.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import overload

from bilm.errors import DataError
from bilm.support.remote import upload
from bilm.support.urls import is_url, name_of, require_local

try:
    import fcntl
except ImportError:  # Windows has no fcntl; files are not locked there
    fcntl = None  # type: ignore[assignment]

PREFIX = ".bilm-"  # prefix of the names of temporary folders
LOCK, CONTENT = "lock", "new"  # the two entries of a temporary folder
MAX_NAME_BYTES = 255  # limit on file names of common file systems
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path`, or upload it, if the block succeeds.

    The new file gets the mode of the file that it replaces. If `path` is a symbolic link, its
    target is replaced. If the block fails, the temporary file is removed. If the process is killed,
    the next writer of the same path removes it.

    Raises: OSError, naming `path`, if it cannot be written or is not a regular file; RemoteError if
        it cannot be uploaded.
    """
    target = output_path(path)
    with scratch(path) as folder:
        temporary = folder / target.name
        yield temporary
        if is_url(path):
            upload(temporary, path)
            return
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)


@contextmanager
def replacing_folder(path: str | os.PathLike, mark: str, others: Collection[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path` if the block succeeds.

    If the block fails, the temporary folder is removed and an existing folder is unchanged.

    Args:
        path: the folder. An existing one is replaced if it is empty or an earlier output.
        mark: name of the file that every earlier output contains.
        others: names of the other entries that an earlier output may contain.
    Raises: DataError if `path` exists and is neither empty nor an earlier output; OSError if the
        folder cannot be written.
    """
    require_local(path, "a folder to write")
    target = Path(os.path.realpath(expanded(path)))
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: found a file, expected a new or empty folder")
    names = sorted(entry.name for entry in target.iterdir()) if target.is_dir() else []
    foreign = [name for name in names if name != mark and name not in others]
    if names and mark not in names:
        raise DataError(
            f"{path}: contains files other than an earlier output ({mark} is missing), so it is "
            f"not replaced; choose another folder"
        )
    if foreign:
        raise DataError(
            f"{path}: contains {foreign[0]} in addition to {mark}, so it is not replaced; choose "
            "another folder"
        )
    with scratch(beside(target, ".new")) as folder:
        new = folder / "new"
        new.mkdir()
        yield new
        if target.exists():
            os.rename(target, folder / "old")
        os.rename(new, target)


@contextmanager
def scratch(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a new folder beside `path` for temporary files; remove it at the end.

    Each writer (thread, process or container) creates its own folder and holds a lock in it. The
    lock ends with the process, so a folder whose lock is free is a leftover.

    Raises: OSError, naming `path`, if the folder cannot be created or the disk is full.
    """
    target = output_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    prefix = target.with_name(_prefix(target))
    with _naming(path, prefix):
        folder, held = _held_folder(prefix)
    try:
        with _naming(path, folder):
            (folder / CONTENT).mkdir()
            yield folder / CONTENT
    finally:
        with suppress(OSError):  # the next writer tries again
            _remove(folder)
        os.close(held)


def remove_leftovers(path: str | os.PathLike) -> None:
    """Remove the temporary folders of killed writers of `path`; keep those in use."""
    target = output_path(path)
    if not target.parent.is_dir():
        return
    prefix = _prefix(target)
    for folder in [path for path in target.parent.iterdir() if path.name.startswith(prefix)]:
        with suppress(OSError):  # the folder cannot be locked, or another process is removing it
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                _remove_if_dead(folder)


def output_path(path: str | os.PathLike) -> Path:
    """Return the file that writing to `path` replaces, after expanding `~` and following links.

    For a URL, the result is a name in the working folder that differs between URLs. No file gets
    this name; temporary files are beside it.

    Raises: OSError if it exists and is not a regular file, or if the path ends with a slash.
    """
    if os.fspath(path).endswith(("/", os.sep)):
        raise IsADirectoryError(
            errno.EISDIR, "Ends with a slash, expected a file name", os.fspath(path)
        )
    if is_url(path):
        return beside(Path.cwd() / name_of(path), f".{_digest(path)}")
    target = Path(os.path.realpath(expanded(path)))
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(
                errno.EISDIR, "Found a folder, expected a file name", os.fspath(path)
            )
        if not stat.S_ISREG(mode):
            raise OSError(
                errno.EINVAL, "Not a regular file, so it cannot be replaced", os.fspath(path)
            )
    return target


def keep_inputs(output: str | os.PathLike, *inputs: str | os.PathLike | None) -> None:
    """Check that an output replaces no input, not even by another name.

    Raises: DataError if it does.
    """
    output_path(output)  # raises OSError for a folder
    target = _identity(output)
    if any(target == _identity(path) for path in inputs if path is not None):
        raise DataError(
            f"{output}: is also an input or another output of this command; choose another name"
        )


def _identity(path: str | os.PathLike) -> str:
    """Return a text that is the same for all names of a file, except hard links."""
    return path if is_url(path) else os.path.realpath(expanded(path))


@overload
def expanded(path: str | os.PathLike) -> str: ...


@overload
def expanded(path: None) -> None: ...


@overload
def expanded(path: str | os.PathLike | None) -> str | None: ...


def expanded(path: str | os.PathLike | None) -> str | None:
    """Return a path with a leading `~` replaced by the home folder; None for None."""
    return None if path is None else os.path.expanduser(os.fspath(path))


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending appended; if the name becomes too long, a digest replaces
    it."""
    fits = len(os.fsencode(path.name + ending)) <= MAX_NAME_BYTES
    return path.with_name((path.name if fits else _digest(path.name)) + ending)


def sha256_of(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file's content, 64 hexadecimal digits. Raises: OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def version_of(path: str | os.PathLike) -> tuple[int, ...]:
    """Return numbers that change when a file is replaced or its content changes.

    They include the time of the last change of its status, because programs such as `cp -p` set
    the time of the last change of its content.

    Raises: OSError.
    """
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _prefix(target: Path) -> str:
    """Return the start of the names of all temporary folders for a file."""
    return f"{PREFIX}{_digest(target.name)}-"


def _held_folder(prefix: Path) -> tuple[Path, int]:
    """Create and lock a folder; retry if another writer removes it before it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix.name, dir=prefix.parent))
        try:
            held = hold(folder / LOCK, os.O_CREAT | os.O_EXCL)
        except FileNotFoundError:
            continue
        except OSError:
            folder.rmdir()
            raise
        if held is not None:
            return folder, held


def _remove_if_dead(folder: Path) -> None:
    """Remove a temporary folder whose lock is free. Raises: OSError, also if the file system
    does not support locks."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # a folder without a lock is always empty
        return
    try:
        if _lock(file):
            _remove(folder)
    finally:
        os.close(file)


def _remove(folder: Path) -> None:
    """Remove a temporary folder. The lock file is removed last, so that after a kill the next
    writer can still lock the folder."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder / CONTENT)
    (folder / LOCK).unlink()
    folder.rmdir()


@contextmanager
def _naming(path: str | os.PathLike, temporary: Path) -> Iterator[None]:
    """Make disk errors name the path that the user passed instead of the temporary one."""
    try:
        yield
    except OSError as error:
        name = error.filename
        is_ours = isinstance(name, str | os.PathLike) and str(name).startswith(str(temporary))
        if error.errno is not None and (is_ours or (name is None and error.errno in FULL)):
            reason = os.strerror(error.errno)
            raise OSError(error.errno, reason, os.fspath(path)) from error
        raise


# --- locks: a lock ends when its file is closed or its process ends ---


def hold(path: str | os.PathLike, flags: int = 0) -> int | None:
    """Open a file and lock it until it is closed or the process ends.

    Args:
        path: the file.
        flags: more flags for `os.open`, such as `os.O_CREAT`.
    Returns: the file descriptor, to be closed by the caller; None if another process or thread
        holds the lock or has removed the file. On a file system without locks, always the
        descriptor.
    Raises: OSError if the file cannot be opened.
    """
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o666)
    try:
        if _lock(file) and os.fstat(file).st_nlink:
            return file
    except OSError as error:
        if error.errno in NO_LOCKS:
            return file
        os.close(file)
        raise
    os.close(file)
    return None


def _lock(file: int) -> bool:
    """Lock an open file; return False if another process or thread holds the lock.

    Raises: OSError if the file system has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
