"""What a process settles before TensorFlow computes."""

import json
import os
import subprocess
import sys

import keras
import pytest

from bilm.process import LOG_LEVEL, THREADS, share_cores

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
import json
import tensorflow as tf
from bilm.process import share_cores
shared = share_cores()
threading = tf.config.threading
numbers = threading.get_inter_op_parallelism_threads, threading.get_intra_op_parallelism_threads
print(json.dumps([shared, *(number() for number in numbers)]))
"""


def test_two_operations_side_by_side_on_half_of_the_cores_each():
    limit = "import os\nos.sched_getaffinity = lambda pid: set(range(8))\n"
    assert run(limit + SHARE) == [True, 2, 4]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it settles TensorFlow's")
@pytest.mark.parametrize("cores, each", [(1, 1), (2, 1), (3, 1), (8, 4)])
def test_half_of_the_cores_but_one_at_least(cores, each, monkeypatch):
    import tensorflow as tf

    settled = []
    for kind in ("inter", "intra"):
        name = f"set_{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, name, settled.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    assert share_cores() is True
    assert settled == [2, each]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it settles TensorFlow's")
def test_what_the_user_has_set_stays(monkeypatch):
    import tensorflow as tf

    for setter in ("set_inter_op_parallelism_threads", "set_intra_op_parallelism_threads"):
        monkeypatch.setattr(tf.config.threading, setter, lambda _: pytest.fail("set anew"))
    for name in THREADS:
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            assert share_cores() is False


def test_threads_that_run_are_left_as_they_are():
    program = SHARE.replace("from bilm", "tf.zeros(1) + 1\nfrom bilm")
    assert run(program) == [False, 0, 0]


def test_tensorflow_starts_quietly():
    done = start(QUIET)
    assert (json.loads(done.stdout), done.stderr) == ([False, 3], "")


def test_the_level_that_the_user_has_set_stays():
    program = "import os, sys, bilm; bilm.quiet(); print(os.environ[bilm.process.LOG_LEVEL])"
    program += "; assert 'tensorflow' not in sys.modules"
    program = program.replace("bilm; ", "bilm, bilm.process; ")
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


def test_a_quiet_start_needs_no_folder_for_temporary_files_and_no_standard_error():
    assert start(NOTHING_TO_HOLD_WITH).stdout == "ERROR\n"


def run(program, environment=()):
    """Run a program and give what it prints last, as JSON."""
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
