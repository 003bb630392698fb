"""The number of threads in which NumPy computes matrix products."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from bilm.support.process import is_machine_busy

ONE_THREAD_BYTES = 1 << 20  # largest matrix that one core multiplies with a row as fast as several

_blas = cache(ThreadpoolController)  # controls the BLAS libraries that NumPy has loaded


def blas_threads(n_bytes: float) -> AbstractContextManager[None]:
    """Let NumPy compute the products of a block, with matrices of at most `n_bytes`, in one thread
    if more do not help or if other programs use the cores.

    The threads of BLAS wait actively for each other, so if other programs use the cores, a small
    product takes many times as long as in one thread.
    """
    is_alone = n_bytes <= ONE_THREAD_BYTES or is_machine_busy()
    return one_blas_thread if is_alone else nullcontext()


class _OneThread:
    """Blocks in which NumPy computes each product in one thread. The number belongs to the process:
    the first of several blocks at the same time, in threads of Python, sets it, and the last one
    restores it."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._n_blocks = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._changing:
            if not self._n_blocks:
                self._limit = _blas().limit(limits=1, user_api="blas")
            self._n_blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._changing:
            self._n_blocks -= 1
            if not self._n_blocks:
                self._limit.restore_original_limits()


one_blas_thread = _OneThread()
