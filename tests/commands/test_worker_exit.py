"""How the process of a command ends: a worker of a run does not wait for destructors."""

import subprocess
import sys

import pytest

CODE = """
import atexit, sys
from bilm.commands.main import IS_WORKER, command, run_script

class Destructor:
    def __del__(self):
        print("destructor", flush=True)

@command()
def work():
    "Work."
    print("result")
    return 3

kept = Destructor()
atexit.register(print, "exit function")
if sys.argv.pop() == "worker":
    IS_WORKER.set()
work.tensorflow = False
run_script(work)
"""


@pytest.mark.parametrize("kind", ["worker", "single"])
def test_worker_exits_without_destructors(kind):
    """Those of TensorFlow may wait for a minute."""
    command = [sys.executable, "-c", CODE, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (3, "")
    expected = ["result", "exit function"] + ["destructor"] * (kind == "single")
    assert done.stdout.splitlines() == expected
