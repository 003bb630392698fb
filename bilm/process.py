"""What a process settles before TensorFlow computes: a quiet start, memory that it keeps, cores."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

LOG_LEVEL, LOUD, QUIET, MUTE = "TF_CPP_MIN_LOG_LEVEL", ("0", "1"), "2", "3"
SIDE_BY_SIDE = 2  # operations at a time, as many as there are directions
THREADS = ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")  # what TensorFlow reads too
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of the GNU C library


def quiet() -> None:
    """Import TensorFlow and have it look for devices, without the dozen lines it logs about that.

    Call it before TensorFlow or Keras is imported; afterwards it does no harm. Warnings of
    TensorFlow are off from then on, its errors are not. Where TF_CPP_MIN_LOG_LEVEL asks for more,
    with 0 or 1, or Keras is told to use another backend, nothing changes. Set CUDA_VISIBLE_DEVICES
    before.

    Example:
        import bilm
        bilm.quiet()
        import keras
    """
    if is_loud() or os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        return
    os.environ.setdefault(LOG_LEVEL, QUIET)
    with _standard_error_held():  # the first lines come before TensorFlow reads the level
        import tensorflow as tf

        tf.config.list_physical_devices()
    tf.get_logger().setLevel("ERROR")


def is_loud() -> bool:
    """Return whether TF_CPP_MIN_LOG_LEVEL asks for more of TensorFlow's lines than its errors."""
    return os.environ.get(LOG_LEVEL) in LOUD


@contextmanager
def _standard_error_held() -> Iterator[None]:
    """Hold back what the block writes on standard error, in C++ too, unless it raises."""
    try:
        held = tempfile.TemporaryFile()  # noqa: SIM115
        terminal = os.dup(2)
    except OSError:  # no place for temporary files, or standard error is closed: hold nothing
        yield
        return
    with held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(terminal, held.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def keep_freed_memory() -> bool:
    """Have malloc keep what is freed, for this process, in place of giving it back at once.

    TensorFlow takes and frees every tensor of a step on the CPU. Large ones come from the operating
    system each time, which clears them page by page: a third of a training step. What the process
    keeps is bounded by the most that it ever held.

    Returns: whether the C library has that choice, as GNU's has.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, Windows, musl
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def share_cores() -> bool:
    """Have TensorFlow run two operations at a time, each on half of the cores; call it early.

    By default it starts as many operations as there are cores, and divides each among all of
    them: the products of one direction wait for a core that the other one holds. Nothing is
    changed where there is a GPU, where the user has set either of `THREADS`, and where TensorFlow
    has started its threads, as it has once it computed anything.

    Returns: whether the cores are shared so.
    """
    import tensorflow as tf

    if any(name in os.environ for name in THREADS) or tf.config.list_physical_devices("GPU"):
        return False
    threading = tf.config.threading
    try:
        threading.set_inter_op_parallelism_threads(SIDE_BY_SIDE)
        threading.set_intra_op_parallelism_threads(max(1, _n_cores() // SIDE_BY_SIDE))
    except RuntimeError:  # its threads run
        return False
    return True


def _n_cores() -> int:
    """How many cores this process may use, which is less than the machine has under a limit."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1
