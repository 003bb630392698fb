"""Process settings: `bilm.quiet` and the threads of TensorFlow."""

import json
import os
import subprocess
import sys
import threading

import keras
import pytest
import threadpoolctl

from bilm.support.process import LOG_LEVEL, THREADS, one_blas_thread, share_cores

QUIET = """
import json, sys
import bilm
before = "tensorflow" in sys.modules
bilm.quiet()
import tensorflow as tf
bilm.quiet()
print(json.dumps([before, int(tf.reduce_sum(tf.ones(3)))]))
"""
SHARE = """
import json, os
import tensorflow as tf
from bilm.support.process import share_cores
os.sched_getaffinity = lambda pid: set(range(8))
shared = share_cores()
threading = tf.config.threading
numbers = threading.get_inter_op_parallelism_threads, threading.get_intra_op_parallelism_threads
tf.zeros(1) + 1
os.sched_getaffinity = lambda pid: set(range(4))
print(json.dumps([shared, *(number() for number in numbers), share_cores()]))
"""


def test_share_cores_sets_the_threads_of_tensorflow():
    """It has no effect once the threads run."""
    assert run(SHARE) == [True, 2, 4, False]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sets TensorFlow's threads")
@pytest.mark.parametrize("cores, each", [(1, 1), (2, 1), (3, 1), (8, 4)])
def test_share_cores_gives_each_operation_half_of_the_cores(cores, each, monkeypatch):
    import tensorflow as tf

    found = []
    for kind in ("inter", "intra"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, name, found.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    assert share_cores() is True
    assert found == [2, each]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sets TensorFlow's threads")
def test_share_cores_keeps_settings_of_the_user(monkeypatch):
    import tensorflow as tf

    for setter in ("set_inter_op_parallelism_threads", "set_intra_op_parallelism_threads"):
        monkeypatch.setattr(tf.config.threading, setter, lambda _: pytest.fail("changed"))
    for name in THREADS:
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            assert share_cores() is False


def blas_threads():
    """Return the number of threads of each BLAS library."""
    return [
        found["num_threads"]
        for found in threadpoolctl.threadpool_info()
        if found["user_api"] == "blas"
    ]


@pytest.fixture
def two_blas_threads():
    """Let BLAS use two threads; skip the test if no known library is loaded."""
    with threadpoolctl.threadpool_limits(2, "blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("NumPy's BLAS library cannot be controlled")
        yield


def test_blas_has_one_thread_in_a_block_and_its_threads_again_after_an_error(two_blas_threads):
    with pytest.raises(KeyError), one_blas_thread():
        assert set(blas_threads()) == {1}
        raise KeyError
    assert set(blas_threads()) == {2}


def test_blas_threads_are_restored_after_overlapping_blocks_of_threads(two_blas_threads):
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with one_blas_thread(), one_blas_thread():
        thread.start()
        entered.wait()
        assert set(blas_threads()) == {1}
    leave.set()
    thread.join()
    assert set(blas_threads()) == {2}


def test_quiet_start_of_tensorflow():
    done = start(QUIET)
    assert (json.loads(done.stdout), done.stderr) == ([False, 3], "")


def test_quiet_keeps_the_log_level_of_the_user():
    program = (
        "import os, sys, bilm; bilm.quiet(); print(os.environ[bilm.support.process.LOG_LEVEL])"
    )
    program += "; assert 'tensorflow' not in sys.modules"
    program = program.replace("bilm; ", "bilm, bilm.support.process; ")
    assert start(program, {"TF_CPP_MIN_LOG_LEVEL": "0"}).stdout == "0\n"


NOTHING_TO_HOLD_WITH = """
import os, sys, tempfile, types
import bilm

def none():
    raise FileNotFoundError("no usable temporary directory")

tempfile.TemporaryFile = none
os.close(2)
tensorflow = sys.modules["tensorflow"] = types.ModuleType("tensorflow")
tensorflow.config = types.SimpleNamespace(list_physical_devices=list)
tensorflow.get_logger = lambda: types.SimpleNamespace(setLevel=print)
bilm.quiet()
"""


def test_quiet_without_a_temporary_folder_and_standard_error():
    assert start(NOTHING_TO_HOLD_WITH).stdout == "ERROR\n"


def run(program, environment=()):
    """Run a program and return its last line, parsed as JSON."""
    return json.loads(start(program, environment).stdout.splitlines()[-1])


def start(program, environment=()):
    inherited = {k: v for k, v in os.environ.items() if k not in (*THREADS, LOG_LEVEL)}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **dict(environment)},
        check=True,
        capture_output=True,
        text=True,
    )
