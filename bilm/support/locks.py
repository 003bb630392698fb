"""Locks on files. A lock ends when its file is closed or its process ends."""

from __future__ import annotations

import errno
import os

try:
    import fcntl
except ImportError:  # Windows has no fcntl; files are not locked there
    fcntl = None  # type: ignore[assignment]

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


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
        if lock(file) and os.fstat(file).st_nlink:
            return file
    except OSError as error:
        if error.errno in NO_LOCKS:
            return file
        os.close(file)
        raise
    os.close(file)
    return None


def lock(file: int) -> bool:
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
