"""The number of threads in which NumPy computes matrix products."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

from bilm.support.process import is_machine_busy

ONE_THREAD_BYTES = 1 << 20  # largest matrix that one core multiplies with a row as fast as several

_blas = cache(ThreadpoolController)  # controls the BLAS libraries that NumPy has loaded
_limited = Lock()  # held by a block of `one_blas_thread`


def blas_threads(n_bytes: float) -> AbstractContextManager[None]:
    """Let NumPy compute the products of a block, with matrices of at most `n_bytes`, in one thread
    if more do not help or if other programs use the cores.

    The threads of BLAS wait actively for each other, so if other programs use the cores, a small
    product takes many times as long as in one thread.
    """
    is_alone = n_bytes <= ONE_THREAD_BYTES or is_machine_busy()
    return one_blas_thread() if is_alone else nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let NumPy compute each product of the block in one thread. The number belongs to the process.
    Of several blocks at the same time, in threads of Python, the first one sets and restores it, so
    that it is never restored out of order."""
    if not _limited.acquire(blocking=False):
        yield
        return
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limited.release()
