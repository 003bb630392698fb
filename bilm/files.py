"""Writing files whole or not at all, and removing what killed writers left."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bilm.errors import DataError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None

PREFIX = ".bilm-"  # starts the name of a writer's temporary folder
LOCK, CONTENT = "lock", "new"  # what a writer's folder holds
MAX_NAME_BYTES = 255  # of a file name, on every common file system
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
SWAPPED = "options come first, weights second"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: str | Path) -> bool:
    """Return whether a file starts like an HDF5 file."""
    with open(path, "rb") as file:
        return file.read(len(HDF5_MAGIC)) == HDF5_MAGIC


def is_json_object(path: str | Path) -> bool:
    """Return whether a file starts like a JSON object."""
    with open(path, "rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path to write to; move it to `path` if the block succeeds.

    The file gets the mode of the one it replaces, or that of a new file. If `path` is a link, the
    file it points to is replaced. A block that fails leaves nothing behind. The next writer of the
    same path removes what a killed process left.

    Raises: OSError, naming `path`, if it cannot be written or is not a regular file.
    """
    target = output_path(path)
    with scratch(path) as folder:
        temporary = folder / target.name
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)


@contextmanager
def scratch(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a new folder beside `path` for work in progress; remove it at the end.

    Every writer, be it a thread, a process or a container, has a folder of its own and holds a
    lock in it. The lock ends with the process, so a folder that can be locked is a leftover.

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
    """Remove the folders that killed writers of `path` left, but none that is in use."""
    target = output_path(path)
    if not target.parent.is_dir():
        return
    with os.scandir(target.parent) as entries:
        prefix = _prefix(target)
        found = [e for e in entries if e.name.startswith(prefix)]
    for entry in found:
        with suppress(OSError):  # it cannot be locked, or another process is removing it
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                _remove_if_dead(Path(entry.path))


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
        if _locked(file) and os.fstat(file).st_nlink:
            return file
    except OSError as error:
        if error.errno in NO_LOCKS:
            return file
        os.close(file)
        raise
    os.close(file)
    return None


def output_path(path: str | os.PathLike) -> Path:
    """Return the file that writing to `path` changes: `~` is expanded, links are followed.

    Raises: OSError if it exists and is not a regular file.
    """
    target = Path(os.path.realpath(expanded(path)))
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(
                errno.EISDIR, "Is a folder, expected a file name", os.fspath(path)
            )
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file, cannot be replaced", os.fspath(path))
    return target


def keep_inputs(output: str | os.PathLike, *inputs: str | os.PathLike | None) -> None:
    """Check that an output is not one of the input files, not even by another name.

    Raises: DataError if it is.
    """
    target = output_path(output)
    if any(target == Path(os.path.realpath(expanded(path))) for path in inputs if path is not None):
        raise DataError(
            f"{output}: is also an input or another output of this command; choose another name"
        )


def expanded(path: str | os.PathLike | None) -> str | None:
    """Return a path with a leading `~` replaced by the home folder; None for None."""
    return None if path is None else os.path.expanduser(os.fspath(path))


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending added; a digest replaces a name that gets too long."""
    name = path.name + ending
    fits = len(os.fsencode(name)) <= MAX_NAME_BYTES
    return path.with_name(name if fits else _digest(path.name) + ending)


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _prefix(target: Path) -> str:
    """Return how the names of all temporary folders for a file start."""
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
    """Remove a writer's folder if its lock is free. Raises: OSError, also if there are no locks."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # a folder without a lock is always empty
        return
    try:
        if _locked(file):
            _remove(folder)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
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


def _remove(folder: Path) -> None:
    """Remove a writer's folder, the lock last: a kill leaves a folder that can be locked."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder / CONTENT)
    (folder / LOCK).unlink()
    folder.rmdir()


def sha256_of(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file's content, 64 hexadecimal digits. Raises: OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _naming(path: str | os.PathLike, temporary: Path) -> Iterator[None]:
    """Make disk errors name the path that the user passed, not the temporary one."""
    try:
        yield
    except OSError as error:
        name = error.filename
        is_ours = isinstance(name, str | os.PathLike) and str(name).startswith(str(temporary))
        if is_ours or (name is None and error.errno in FULL):
            reason = os.strerror(error.errno)
            raise OSError(error.errno, reason, os.fspath(path)) from error
        raise
