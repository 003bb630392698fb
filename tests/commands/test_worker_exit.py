"""How the process of a command ends: a worker of a run does not wait for destructors."""

import subprocess
import sys

import pytest

from bilm.commands import main, options
from bilm.training.hosts import exchange

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


@pytest.mark.parametrize("workers", ["127.0.0.1:20001,127.0.0.1:20002", None])
def test_command_with_workers_is_a_worker(monkeypatch, workers):
    class Joined:
        is_chief = True

        def __init__(self, cluster, minutes):
            assert main.IS_WORKER.is_set() == (cluster is not None)

    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(exchange, "Hosts", Joined)
    index = None if workers is None else 0
    values = {"workers": workers, "worker_index": index, "join_minutes": 1.0}
    try:
        options.run_hosts(values)
        assert main.IS_WORKER.is_set() == (workers is not None)
    finally:
        main.IS_WORKER.clear()
