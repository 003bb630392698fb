"""What a process settles before TensorFlow computes."""

import json
import os
import subprocess
import sys

import pytest

from bilm.process import THREADS

SHARE = """
import json
import tensorflow as tf
from bilm.process import share_cores
shared = share_cores()
threading = tf.config.threading
numbers = threading.get_inter_op_parallelism_threads, threading.get_intra_op_parallelism_threads
print(json.dumps([shared, *(number() for number in numbers)]))
"""


@pytest.mark.parametrize("cores, each", [(1, 1), (2, 1), (3, 1), (8, 4)])
def test_two_operations_side_by_side_on_half_of_the_cores_each(cores, each):
    limit = f"import os\nos.sched_getaffinity = lambda pid: set(range({cores}))\n"
    assert run(limit + SHARE) == [True, 2, each]


@pytest.mark.parametrize("name", THREADS)
def test_what_the_user_has_set_stays(name):
    assert run(SHARE, {name: "1"})[0] is False


def test_threads_that_run_are_left_as_they_are():
    program = SHARE.replace("from bilm", "tf.zeros(1) + 1\nfrom bilm")
    assert run(program) == [False, 0, 0]


def run(program, environment=()):
    """Run a program and give what it prints last, as JSON."""
    inherited = {k: v for k, v in os.environ.items() if k not in THREADS}
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **dict(environment)},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout.splitlines()[-1])
