"""The number of threads in which NumPy computes matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import active_count

from threadpoolctl import ThreadpoolController

from bilm.support.process import is_machine_busy

ONE_THREAD_BYTES = 1 << 20  # largest matrix that one core multiplies with a row as fast as several

_blas = cache(ThreadpoolController)  # controls the BLAS libraries that NumPy has loaded


@contextmanager
def blas_threads(n_bytes: float) -> Iterator[None]:
    """Let NumPy compute the products of the block, with matrices of at most `n_bytes`, in one
    thread if more do not help or if other programs use the cores.

    The threads of BLAS wait actively for each other, so if other programs use the cores, a small
    product takes many times as long as in one thread. The number of threads belongs to the process.
    A block changes nothing if several threads of Python run, which could restore it out of order.
    """
    if active_count() > 1 or not (is_machine_busy() or n_bytes <= ONE_THREAD_BYTES):
        yield
        return
    with _blas().limit(limits=1, user_api="blas"):
        yield
