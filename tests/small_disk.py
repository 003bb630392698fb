"""A disk that is full as soon as a test wants it."""

import resource
import signal
from contextlib import contextmanager


@contextmanager
def small_disk(n_bytes):
    """No file can grow beyond so many bytes: a write fails in the middle, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
