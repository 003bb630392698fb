#!/usr/bin/env python
"""Kill training runs at random moments and compare them with an undisturbed run.

Examples:
  python benchmarks/kill.py --schedules 20
  python benchmarks/kill.py --schedules 3 --replicas 2 --tolerance 1e-6

Each schedule starts `bilm train`, kills it with SIGKILL --kills times, in random steps, saves and
starts, and lets it finish. The loss of every step in `history.csv` and all values of the last
checkpoint must equal the undisturbed run.
"""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

FLAGS = flags.FLAGS

OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 20,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {"dim": 16, "projection_dim": 8, "n_layers": 2, "cell_clip": 3, "proj_clip": 3},
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "n_epochs": 9,
    "batch_size": 4,
    "unroll_steps": 8,
    "n_negative_samples_batch": 32,
    "state_reset_probability": 0.05,
}
STARTING = 0.2  # share of kills at the start, before the first step


class Comparison(NamedTuple):
    """The largest differences between a killed and an undisturbed run."""

    n_kills: int
    n_losses: int
    losses: float
    values: float


def write_input(folder: Path, options: dict = OPTIONS, n_sentences: int = 30) -> None:
    """Write options, vocabulary and text files; 40 steps are more than two epochs."""
    rng = random.Random(0)
    words = [f"w{i}" for i in range(100)]
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *words]) + "\n")
    for shard in range(3):
        lines = (
            " ".join(words[int(rng.paretovariate(1)) % 100] for _ in range(rng.randint(1, 30)))
            for _ in range(n_sentences // 3)
        )
        (folder / f"{shard}.txt").write_text("".join(f"{line}\n" for line in lines))


def start(folder: Path, run: Path, n_steps: int, checkpoint_steps: int, replicas: int):
    """Start the command on the input in `folder`."""
    arguments = {
        "input": folder / "[0-9].txt",
        "vocab": folder / "vocab.txt",
        "options": folder / "options.json",
        "output": run,
        "n_gpus": 0,
        "cpu_replicas": replicas,
        "n_steps": n_steps,
        "checkpoint_steps": checkpoint_steps,
        "log_steps": 1,
    }
    command = [sys.executable, "-m", "bilm", "train", *(f"--{k}={v}" for k, v in arguments.items())]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def finish(process) -> tuple[float, float]:
    """Wait for a run to succeed; return the seconds to its first step and per step."""
    times, log = [time.monotonic()], ""
    with process:
        for line in process.stderr:
            log += line
            if ", step " in line:
                times.append(time.monotonic())
    if process.returncode:
        raise RuntimeError(f"the run ended with status {process.returncode}:\n{log}")
    if len(times) == 1:  # no step was left
        return 0.0, 0.0
    return times[1] - times[0], (times[-1] - times[1]) / max(1, len(times) - 2)


def kill_at(process, step: int, seconds: float) -> bool:
    """Kill a run some seconds after it logs a step, or after its start for step 0."""
    if step:
        for line in process.stderr:
            if f"step {step} of" in line:
                break
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def killed_run(folder, run, settings: tuple, seconds: tuple, n_kills: int, rng) -> int:
    """Run to the end despite kills; return how many of them hit a running process."""
    n_steps, hits = settings[0], 0
    to_start, of_a_step = seconds
    for step in sorted(rng.sample(range(1, n_steps - 5), n_kills)):
        process = start(folder, run, *settings)
        if rng.random() < STARTING:
            hits += kill_at(process, 0, rng.uniform(0, to_start))
        else:
            hits += kill_at(process, step, rng.uniform(0, 2 * of_a_step))
    finish(start(folder, run, *settings))
    return hits


def logged_losses(run: Path) -> dict[tuple[str, int], float]:
    """Return the loss of each direction and step, with six significant digits."""
    with open(run / "history.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = "loss_forward", "loss_backward"
    return {(c, int(row["step"])): float(row[c]) for row in rows for c in columns if row[c]}


def stored_values(run: Path, step: int) -> dict:
    """Return every array of a checkpoint by name."""
    import numpy as np
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(run / f"model.ckpt-{step}"))
    names = reader.get_variable_to_shape_map()
    return {n: np.asarray(reader.get_tensor(n)) for n in names if "OBJECT_GRAPH" not in n}


def compare(straight: Path, killed: Path, n_steps: int, n_kills: int) -> Comparison:
    """Compare all losses and all values of the last checkpoint."""
    import numpy as np

    expected, losses = logged_losses(straight), logged_losses(killed)
    if {step for _, step in expected} != set(range(1, n_steps + 1)) or set(expected) != set(losses):
        raise RuntimeError(f"{killed}: losses of some steps are not in history.csv")
    differences = [abs(loss - losses[name]) for name, loss in expected.items()]
    one, other = stored_values(straight, n_steps), stored_values(killed, n_steps)
    if set(one) != set(other):
        raise RuntimeError(f"the last checkpoint of {killed} contains other names")
    largest = 0.0
    for name, value in one.items():
        if value.dtype.kind == "f":
            # The best score is infinite until the first evaluation.
            finite = np.isfinite(value) | np.isfinite(other[name])
            difference = np.abs(value[finite] - other[name][finite])
            largest = max([largest, *difference.tolist()])
        elif "save_counter" not in name and not np.array_equal(value, other[name]):
            raise RuntimeError(f"{killed}: {name} differs")
    return Comparison(n_kills, len(losses), max(differences), largest)


def define_flags() -> None:  # not at module level: a test imports this module
    flags.DEFINE_integer("schedules", 20, "Number of runs.", 1)
    flags.DEFINE_integer("kills", 5, "Number of kills per run.", 1)
    flags.DEFINE_integer("steps", 40, "Steps per run.", 10)
    flags.DEFINE_integer("checkpoint_steps", 2, "Steps between checkpoints.", 1)
    flags.DEFINE_integer("replicas", 1, "Logical CPU devices.", 1)
    flags.DEFINE_float("tolerance", 0.0, "Largest difference allowed; 0 is bit for bit.", 0)
    flags.DEFINE_integer("seed", 0, "Seed of the schedules.")


def run_schedules(folder: Path, killed: Callable[[Path, random.Random], int]) -> None:
    """Run the schedules, compare each with the run `straight`, and exit with 1 if one differs.

    Args:
        folder: folder of all runs.
        killed: trains to the end in a given folder despite kills; returns the number of kills.
    """
    failures = total = 0
    for k in range(FLAGS.schedules):
        run, rng = folder / f"run{k}", random.Random(f"{FLAGS.seed}/{k}")
        n_kills = killed(run, rng)
        found = compare(folder / "straight", run, FLAGS.steps, n_kills)
        good = max(found.losses, found.values) <= FLAGS.tolerance
        failures, total = failures + (not good), total + n_kills
        print(
            f"schedule {k}: {n_kills} kills, {found.n_losses} losses differ by at most "
            f"{found.losses:.2g}, weights and accumulators by {found.values:.2g}",
            flush=True,
        )
    print(f"{FLAGS.schedules} schedules, {total} kills: {failures} differ")
    if failures:
        sys.exit(1)


def main(argv) -> None:
    del argv
    with tempfile.TemporaryDirectory(prefix="bilm_kill_") as name:
        folder = Path(name)
        settings = FLAGS.steps, FLAGS.checkpoint_steps, FLAGS.replicas
        write_input(folder)
        seconds = finish(start(folder, folder / "straight", *settings))

        def run_schedule(run: Path, rng: random.Random) -> int:
            return killed_run(folder, run, settings, seconds, FLAGS.kills, rng)

        run_schedules(folder, run_schedule)


if __name__ == "__main__":
    define_flags()
    app.run(main)
