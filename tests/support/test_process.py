"""Process settings: `bilm.quiet` and the threads of TensorFlow."""

import json
import os

import keras
import pytest
from command_runs import run_code

from bilm.support.process import THREADS, share_cores

QUIET = """
import json, sys
import bilm
before = "tensorflow" in sys.modules
bilm.quiet()
import tensorflow as tf
bilm.quiet()
print(json.dumps([before, int(tf.reduce_sum(tf.ones(3)))]))
"""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sets TensorFlow's threads")
@pytest.mark.parametrize("cores, each", [(1, 1), (8, 4)])
def test_share_cores_gives_each_operation_half_of_the_cores(cores, each, monkeypatch):
    import tensorflow as tf

    found = []
    for kind in ("inter", "intra"):
        name = f"{kind}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, f"set_{name}", found.append)
        monkeypatch.setattr(tf.config.threading, f"get_{name}", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    share_cores()
    assert found == [2, each]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sets TensorFlow's threads")
def test_share_cores_keeps_settings_of_the_user(monkeypatch):
    import tensorflow as tf

    for setter in ("set_inter_op_parallelism_threads", "set_intra_op_parallelism_threads"):
        monkeypatch.setattr(tf.config.threading, setter, lambda _: pytest.fail("changed"))
    for name in THREADS:
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            share_cores()


@pytest.mark.slow
def test_quiet_start_of_tensorflow():
    done = run_code(QUIET)
    assert (json.loads(done.stdout), done.stderr) == ([False, 3], "")
