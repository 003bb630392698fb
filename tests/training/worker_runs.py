"""Running `bilm train` as several worker processes on this machine, in tests and benchmarks."""

import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from random import SystemRandom

from command_runs import environment
from tiny_runs import HELDOUT, TEXT, VOCABULARY, tiny_options

STARTED: list[subprocess.Popen] = []  # ended by the fixture of the tests, also if one fails
# Ends a worker with the process that started it, also if that one is killed.
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
JOIN_MINUTES = 8.0


def addresses(n_workers):
    """Addresses on this machine at ports that are free.

    Below the system's ephemeral ports: workers take seconds to start, in
    which another test must not get their ports.
    """
    found: set[str] = set()
    while len(found) < n_workers:
        port = SystemRandom().randrange(20_000, 32_000)  # runs have seeded the common generator
        with suppress(OSError), socket.create_server(("", port)):
            found.add(f"127.0.0.1:{port}")
    return sorted(found)


def start_worker(index, workers, folder, changes, **flags):
    """Start one worker of a run that is saved in `folder`; it logs to a file beside it.

    Without `workers` it is a run of one process; without `changes`, the flag `model` is tuned.
    """
    if changes is not None:
        options = folder.with_suffix(".json")
        options.write_text(json.dumps(tiny_options(**changes).to_dict()))
        flags = {"vocab": VOCABULARY, "options": options} | flags
    flags = {
        "input": TEXT,
        "heldout": HELDOUT,
        "output": folder,
        "n_gpus": 0,
        "join_minutes": JOIN_MINUTES,
        "workers": ",".join(workers) or None,
        "worker_index": index if workers else None,
    } | flags
    named = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    command = "train" if changes is not None else "finetune"
    with open(log_file(folder, index), "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*WITH_PARENT, sys.executable, "-m", "bilm", command, *named],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(),
        )  # fmt: skip
    STARTED.append(process)
    return process


def end_all():
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()


def wait_for(folder, text, index=0, seconds=600):
    """Wait until a worker logs a text; all workers must still run."""
    deadline = time.monotonic() + seconds
    while text not in (log := log_file(folder, index).read_text()):
        ended = [process.returncode for process in STARTED if process.poll() is not None]
        assert not ended and time.monotonic() < deadline, log
        time.sleep(0.002)


def start_workers(n_workers, folder, changes, **flags):
    """Start all workers of a run; see `start_worker`."""
    workers = addresses(n_workers)
    return [start_worker(k, workers, folder, changes, **flags) for k in range(n_workers)]


def finish(processes, folder, status=0, seconds=600):
    """Wait for the workers, each of which must end with a status; return the last line of each."""
    try:
        for process in processes:
            process.wait(seconds)
    finally:
        for process in processes:
            process.kill()
    logs = [log_file(folder, k).read_text() for k in range(len(processes))]
    assert [process.returncode for process in processes] == [status] * len(processes), logs
    return [(log.splitlines() or [""])[-1] for log in logs]


def log_file(folder, index):
    return folder.with_name(f"{folder.name}.{index}.log")
