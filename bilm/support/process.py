"""Process settings made before TensorFlow computes: backend, log level, malloc, threads; forks;
and a thread that reads ahead."""

import ctypes
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import TypeVar

from bilm.errors import BilmError

BACKEND = "KERAS_BACKEND"  # the variable by which users select Keras' backend
LIBRARIES = ("tensorflow", "torch", "jax")  # backends of Keras, the preferred one first
LOG_LEVEL, LOUD, QUIET, MUTE = "TF_CPP_MIN_LOG_LEVEL", ("0", "1"), "2", "3"
SIDE_BY_SIDE = 2  # operations to run at the same time: one per direction of the model
THREADS = ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")  # TensorFlow reads them too
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of the GNU C library
END = object()  # after the last value that is read ahead

Value = TypeVar("Value")

_computes = False  # whether a library with threads computes in this process
_parent = 0  # id of the process in which it did before this one was forked from it


def is_stopped_by_fork() -> bool:
    """Return whether Keras' library would hang: it had computed before this process was forked."""
    return bool(_parent)


def note_computing() -> None:
    """Note that Keras' library computes from now on. Raises: BilmError if it would hang."""
    global _computes
    _computes = True
    if _parent:
        raise BilmError(
            f"process {os.getpid()} was forked from process {_parent}, in which Keras' library "
            "had computed; it does not work after a fork: start processes with "
            "multiprocessing.get_context('spawn'), or embed and score with backend='numpy'"
        )


def in_forks(function: Callable[[], None]) -> Callable[[], None]:
    """Call a function in each process that is forked from this one; a decorator."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=function)
    return function


@in_forks
def _remember_parent() -> None:
    global _parent
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(eager, "_context", None)  # the program itself may have used TensorFlow
    if _computes or getattr(context, "_initialized", False):
        _parent = os.getppid()


def backend_of_keras() -> str | None:
    """Return the name of Keras' backend: the one that the user has set, or else the first of
    `LIBRARIES` that is installed; None without any or without Keras."""
    installed = filter(find_spec, LIBRARIES if find_spec("keras") else ())
    return os.environ.get(BACKEND) or next(installed, None)


def prefer_torch() -> None:
    """Select the PyTorch backend, unless Keras has been imported or the user has chosen one."""
    if "keras" not in sys.modules:
        os.environ.setdefault(BACKEND, "torch")


def require_backend(backend: str, title: str, what: str) -> None:
    """Raise BilmError if Keras runs on another backend; `what` is what requires the backend."""
    import keras

    if keras.backend.backend() != backend:
        raise BilmError(
            f"{what} requires the {title} backend of Keras, but Keras runs on "
            f"{keras.backend.backend()}; set {BACKEND}={backend} before the program starts"
        )


def quiet() -> None:
    """Import TensorFlow without the lines that it logs at its start, and disable its warnings.

    Call this function before TensorFlow or Keras is imported, and after CUDA_VISIBLE_DEVICES is
    set. It has no effect later, if TF_CPP_MIN_LOG_LEVEL is 0 or 1, or on other backends.
    """
    if is_loud() or backend_of_keras() != "tensorflow":
        return
    os.environ.setdefault(LOG_LEVEL, QUIET)
    error = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TensorFlow logs its first lines before it reads the level
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(error, 2)
        os.close(error)
    tf.get_logger().setLevel("ERROR")


def is_loud() -> bool:
    """Return whether TF_CPP_MIN_LOG_LEVEL enables TensorFlow's notes or warnings."""
    return os.environ.get(LOG_LEVEL) in LOUD


def keep_freed_memory() -> None:
    """Make malloc keep freed memory for this process. By default the operating system provides and
    clears the pages of large tensors at each step of TensorFlow, a third of a training step."""
    with suppress(AttributeError, OSError, TypeError):  # not the C library of GNU
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def return_freed_memory() -> None:
    """Return the memory that was freed until now to the system, also after `keep_freed_memory`."""
    with suppress(AttributeError, OSError, TypeError):  # not the C library of GNU
        ctypes.CDLL(None).malloc_trim(0)


def gpu_driver() -> str | None:
    """Return the program of an installed GPU driver; None without one."""
    return next(filter(shutil.which, ("nvidia-smi", "rocm-smi")), None)


def grow_gpu_memory() -> None:
    """Let TensorFlow allocate a GPU's memory as it needs it, unless the user chose otherwise."""
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    is_linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1


def load_average() -> float:
    """Return the mean number of running processes in the last minute; 0.0 on Windows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def is_machine_busy() -> bool:
    """Return whether more processes run than the machine has processors, with one to spare."""
    return load_average() > (os.cpu_count() or 1) + 1


def share_cores() -> None:
    """Let TensorFlow run two operations at a time, each on half of the cores, so that the matrix
    products of one direction do not wait for cores that the other uses. No effect with a GPU, if
    the numbers of threads are set or used already, or on another backend."""
    if backend_of_keras() != "tensorflow":
        return
    import tensorflow as tf

    threads = tf.config.threading
    numbers = threads.get_inter_op_parallelism_threads, threads.get_intra_op_parallelism_threads
    is_set = any(number() for number in numbers) or any(name in os.environ for name in THREADS)
    if is_set or tf.config.list_physical_devices("GPU"):
        return
    with suppress(RuntimeError):  # TensorFlow has started its threads
        threads.set_inter_op_parallelism_threads(SIDE_BY_SIDE)
        threads.set_intra_op_parallelism_threads(max(1, available_cores() // SIDE_BY_SIDE))


def read_ahead(values: Iterator[Value], n_ahead: int, waits: bool = False) -> Iterator[Value]:
    """Yield the values of an iterator; a thread computes the next `n_ahead`. An error of the
    iterator is raised after the values before it. The thread ends with the value that it has begun
    when this generator is deleted, which `waits` for it, or when the program ends. Raises:
    BilmError in a fork of the process, which has no thread."""
    process = os.getpid()
    pool = ThreadPoolExecutor(1, "reading ahead")
    try:
        waiting = deque(pool.submit(next, values, END) for _ in range(n_ahead))
        while (value := waiting.popleft().result()) is not END:
            waiting.append(pool.submit(next, values, END))
            yield value  # type: ignore[misc]
            if os.getpid() != process:
                raise BilmError(
                    "text is read ahead by a thread, which a forked process does not have; start "
                    "reading after the fork"
                )
    finally:
        pool.shutdown(waits, cancel_futures=True)
