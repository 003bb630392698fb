"""Simulates faults of a disk."""

import resource
import signal
from contextlib import contextmanager


def flip_bit(path, part=None):
    """Change a bit of a file: in the first byte of a part of its content, or in its middle."""
    content = bytearray(path.read_bytes())
    content[content.index(part) if part else len(content) // 2] ^= 1
    path.write_bytes(content)


@contextmanager
def small_disk(n_bytes):
    """Limit the size of files, so that a write fails in the middle as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
