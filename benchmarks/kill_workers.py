#!/usr/bin/env python
"""Kill random workers of a run at random moments and compare it with an undisturbed run.

Examples:
  python benchmarks/kill_workers.py --schedules 10
  python benchmarks/kill_workers.py --schedules 2 --workers 3 --tolerance 1e-5

Each schedule starts all workers on this machine and kills one of them with SIGKILL, in a random
step, save or start. The others must end within a minute with a line that names a lost worker. Then
all workers are restarted. After --kills kills, the run finishes. All losses and all values of the
last checkpoint must equal an undisturbed run of one process with the same number of replicas.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kill
from absl import app, flags

FLAGS = flags.FLAGS
WITHIN = 60  # seconds after a kill until the others must have ended
WORDS = {"bidirectional": False, "lstm": kill.OPTIONS["lstm"] | {"n_layers": 1}}


def addresses(n_workers: int) -> list[str]:
    """Return addresses with free ports on this machine."""
    found = []
    for _ in range(n_workers):
        with socket.create_server(("127.0.0.1", 0)) as opened:
            found.append(f"127.0.0.1:{opened.getsockname()[1]}")
    return found


def start(folder: Path, run: Path, workers: list[str]) -> list[subprocess.Popen]:
    """Start all workers; each writes its log to a file beside the run."""
    arguments = {
        "input": folder / "[0-9].txt",
        "vocab": folder / "vocab.txt",
        "options": folder / "options.json",
        "output": run,
        "n_gpus": 0,
        "n_steps": FLAGS.steps,
        "checkpoint_steps": FLAGS.checkpoint_steps,
        "log_steps": 1,
        "join_minutes": 0.7,  # the others stop waiting within the minute
        "workers": ",".join(workers),
    }
    processes = []
    for k in range(len(workers)):
        named = [f"--{name}={value}" for name, value in (arguments | {"worker_index": k}).items()]
        command = [sys.executable, "-m", "bilm", "train", *named]
        with open(log_of(run, k), "w", encoding="utf-8") as log:
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log))
    return processes


def log_of(run: Path, k: int) -> Path:
    return run.with_name(f"{run.name}.{k}.log")


def kill_one(processes: list, run: Path, rng: random.Random) -> bool:
    """Kill a random worker at a random moment; return whether the run was still active."""
    step, dead = rng.randrange(FLAGS.steps), rng.randrange(len(processes))
    while step and f"step {step} of" not in log_of(run, 0).read_text():
        if (
            processes[0].poll() is not None
            or f"at step {FLAGS.steps}" in log_of(run, 0).read_text()
        ):
            break
        # A resumed run does not log earlier steps.
        if f"step {step + 1} of" in log_of(run, 0).read_text():
            break
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.3) if step else rng.uniform(0, 10))
    processes[dead].send_signal(signal.SIGKILL)
    deadline = time.monotonic() + WITHIN
    for process in processes:
        process.wait(max(deadline - time.monotonic(), 0.1))
    if processes[dead].returncode != -signal.SIGKILL:
        return False
    for k, process in enumerate(processes):
        last = (log_of(run, k).read_text().splitlines() or [""])[-1]
        # A worker that finished before the kill does not name another one.
        if k != dead and process.returncode and "error: worker " not in last:
            raise RuntimeError(f"{log_of(run, k)}: does not name a worker at its end: {last}")
    return True


def killed_run(folder: Path, run: Path, n_workers: int, rng: random.Random) -> int:
    """Run to the end despite kills; return how many of them hit a running worker."""
    hits = 0
    for _ in range(FLAGS.kills):
        hits += kill_one(start(folder, run, addresses(n_workers)), run, rng)
    processes = start(folder, run, addresses(n_workers))
    if any([process.wait() for process in processes]):
        raise RuntimeError(f"{log_of(run, 0)}: {log_of(run, 0).read_text()}")
    return hits


def main(argv) -> None:
    del argv
    with tempfile.TemporaryDirectory(prefix="bilm_kill_workers_") as name:
        folder = Path(name)
        kill.write_input(
            folder, {k: v for k, v in (kill.OPTIONS | WORDS).items() if k != "char_cnn"}
        )
        settings = FLAGS.steps, FLAGS.checkpoint_steps, FLAGS.workers
        kill.finish(kill.start(folder, folder / "straight", *settings))
        kill.run_schedules(folder, lambda run, rng: killed_run(folder, run, FLAGS.workers, rng))


if __name__ == "__main__":
    flags.DEFINE_integer("schedules", 10, "Number of runs.", 1)
    flags.DEFINE_integer("kills", 1, "Number of kills per run.", 1)
    flags.DEFINE_integer("workers", 2, "Worker processes.", 2)
    flags.DEFINE_integer("steps", 40, "Steps per run.", 10)
    flags.DEFINE_integer("checkpoint_steps", 2, "Steps between checkpoints.", 1)
    flags.DEFINE_float("tolerance", 1e-6, "Largest difference allowed.", 0)
    flags.DEFINE_integer("seed", 0, "Seed of the schedules.")
    app.run(main)
