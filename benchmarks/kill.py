#!/usr/bin/env python
"""Kill commands at random moments and compare their results with those of undisturbed commands.

Examples:
  python benchmarks/kill.py --schedules 20
  python benchmarks/kill.py --schedules 2 --kills 1 --workers 3 --tolerance 1e-5
  python benchmarks/kill.py --command vocab --command embed --schedules 10 --kills 3

Each schedule starts a command --kills times, kills it with SIGKILL, one time in five before its
first result, and then lets it finish.

train: the loss of every step in `history.csv` and all values of the last checkpoint must equal an
undisturbed run. With --workers, the kill hits a random worker, and the others must end within a
minute with a line that names it; the undisturbed run is one process with as many replicas.

vocab, embed, export: after every kill, each output must be missing or complete. At the end, the
outputs must equal those of an undisturbed command, and the folder must not contain other files.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

from bilm.options.run_options import load_run_options

FLAGS = flags.FLAGS
OPTIONS = load_run_options("tiny").to_dict() | {
    "lstm": {"dim": 16, "projection_dim": 8, "n_layers": 2, "cell_clip": 3, "proj_clip": 3},
    "batch_size": 4,
    "unroll_steps": 8,
    "n_negative_samples_batch": 32,
}
FOR_WORKERS = {"bidirectional": False, "char_cnn": None, "lstm": OPTIONS["lstm"] | {"n_layers": 1}}
STARTING = 0.2  # share of kills before the first result
WITHIN = 60  # seconds after a kill until the other workers must have ended
POLL_SECONDS = 0.002


class Command:
    """A command of bilm in a process, whose log is a file."""

    def __init__(self, arguments: Sequence[object], log: Path):
        self._log = log
        command = [sys.executable, "-m", "bilm", *map(str, arguments)]
        with open(log, "wb") as file:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)

    def wait_until(self, condition: Callable[[str], bool]) -> None:
        """Wait until the log fulfils a condition, or the command ends."""
        while self._process.poll() is None and not condition(self._log.read_text("utf-8")):
            time.sleep(POLL_SECONDS)

    def finish(self) -> None:
        """Wait for the command to succeed."""
        if status := self._process.wait():
            raise RuntimeError(f"status {status}:\n{self._log.read_text('utf-8')}")

    def kill(self) -> bool:
        """Kill the command; return whether it was still running."""
        self._process.send_signal(signal.SIGKILL)
        return self._process.wait() == -signal.SIGKILL

    def check_lost_worker(self, seconds: float) -> None:
        """Wait for a worker to end and, unless it succeeded, to name a lost worker at its end."""
        status = self._process.wait(seconds)
        last = (self._log.read_text("utf-8").splitlines() or [""])[-1]
        if status and "error: worker " not in last:
            raise RuntimeError(f"{self._log}: does not name a worker at its end: {last}")


class Timing(NamedTuple):
    """Seconds from the start of a command to its first result, and from then to its end."""

    to_start: float
    to_end: float

    @classmethod
    def of(cls, start: Callable[[], Command], is_first: Callable[[str], bool]) -> Timing:
        """Run a command to its end; `is_first`: whether its log shows the first result."""
        began = time.monotonic()
        process = start()
        process.wait_until(is_first)
        first = time.monotonic()
        process.finish()
        return cls(first - began, time.monotonic() - first)


# --- training ---


class Training(NamedTuple):
    """Runs of `bilm train` on the input in a folder."""

    folder: Path
    n_steps: int = 40
    checkpoint_steps: int = 2
    replicas: int = 1
    workers: int = 1

    def write_input(self, options: dict, n_sentences: int = 30) -> None:
        """Write options, vocabulary and text files; 40 steps are more than two epochs."""
        rng = random.Random(0)
        words = [f"w{i}" for i in range(100)]
        (self.folder / "options.json").write_text(json.dumps(options))
        (self.folder / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *words]) + "\n")
        for shard in range(3):
            lines = (
                " ".join(words[int(rng.paretovariate(1)) % 100] for _ in range(rng.randint(1, 30)))
                for _ in range(n_sentences // 3)
            )
            (self.folder / f"{shard}.txt").write_text("".join(f"{line}\n" for line in lines))

    def start(self, run: Path, *flags: str, number: int = 0) -> Command:
        """Start one process of a run."""
        folder = self.folder
        arguments = [
            "train", f"--input={folder}/[0-9].txt", f"--vocab={folder}/vocab.txt",
            f"--options={folder}/options.json", f"--output={run}", "--n_gpus=0",
            f"--n_steps={self.n_steps}", f"--checkpoint_steps={self.checkpoint_steps}",
            "--log_steps=1", *flags,
        ]  # fmt: skip
        return Command(arguments, run.with_name(f"{run.name}.{number}.log"))

    def start_all(self, run: Path) -> list[Command]:
        """Start a run: one process, or all workers."""
        if self.workers == 1:
            return [self.start(run, f"--cpu_replicas={self.replicas}")]
        addresses = []
        for _ in range(self.workers):
            with socket.create_server(("127.0.0.1", 0)) as free:
                addresses.append(f"127.0.0.1:{free.getsockname()[1]}")
        # The others stop waiting for a lost worker within the minute.
        flags = "--join_minutes=0.7", f"--workers={','.join(addresses)}"
        numbers = range(self.workers)
        return [self.start(run, *flags, f"--worker_index={k}", number=k) for k in numbers]

    def undisturbed(self, run: Path) -> Timing:
        """Run to the end in one process, with a replica for each worker."""
        flag = f"--cpu_replicas={max(self.replicas, self.workers)}"
        return Timing.of(lambda: self.start(run, flag), lambda log: ", step " in log)

    def killed(self, run: Path, timing: Timing, n_kills: int, rng: random.Random) -> int:
        """Run to the end despite kills; return how many of them hit a running process."""
        hits = 0
        for step in sorted(rng.sample(range(1, self.n_steps - 5), n_kills)):
            processes = self.start_all(run)
            if rng.random() < STARTING:
                time.sleep(rng.uniform(0, timing.to_start))
            else:
                processes[0].wait_until(lambda log, line=f"step {step} of": line in log)
                time.sleep(rng.uniform(0, 2 * timing.to_end / self.n_steps))
            dead = rng.choice(processes)
            hits += dead.kill()
            deadline = time.monotonic() + WITHIN
            for process in processes:
                if process is not dead:
                    process.check_lost_worker(max(deadline - time.monotonic(), 0.1))
        for process in self.start_all(run):
            process.finish()
        return hits

    def largest_difference(self, run: Path, other: Path) -> float:
        """Return the largest difference of all losses and all values of the last checkpoint."""
        import numpy as np

        losses, other_losses = logged_losses(run), logged_losses(other)
        steps = {step for _, step in losses}
        if steps != set(range(1, self.n_steps + 1)) or losses.keys() != other_losses.keys():
            raise RuntimeError(f"{other}: losses of some steps are not in history.csv")
        differences = [abs(loss - other_losses[name]) for name, loss in losses.items()]

        values, others = (stored_values(path, self.n_steps) for path in (run, other))
        if values.keys() != others.keys():
            raise RuntimeError(f"the last checkpoint of {other} contains other names")
        for name, value in values.items():
            if value.dtype.kind == "f":
                # The best score is infinite until the first evaluation.
                is_finite = np.isfinite(value) | np.isfinite(others[name])
                difference = np.abs(value[is_finite] - others[name][is_finite])
                differences.append(float(difference.max(initial=0)))
            elif "save_counter" not in name and not np.array_equal(value, others[name]):
                raise RuntimeError(f"{other}: {name} differs")
        return max(differences)


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


# --- commands that write files ---


class Output:
    """A command that writes files, and its input in a folder."""

    def __init__(self, name: str, folder: Path):
        """Write the input: a text for `vocab`, a run for `export`, and an export for `embed`."""
        self.name, self.file = name, {"vocab": "v", "export": "w.hdf5", "embed": "c.hdf5"}[name]
        if name == "vocab":
            rng = random.Random(0)
            words = [f"w{int(rng.paretovariate(0.5)) % 50_000}" for _ in range(200_000)]
            lines = (" ".join(words[i : i + 10]) + "\n" for i in range(0, len(words), 10))
            (folder / "text.txt").write_text("".join(lines))
            self.flags = [f"--input={folder}/text.txt"]
            return

        training = Training(folder, n_steps=2)
        training.write_input(OPTIONS, n_sentences=300)
        training.start(folder / "run").finish()
        self.flags = [f"--model={folder}/run", "--include_softmax", f"--vocab={folder}/vocab.txt"]
        if name == "embed":
            export = ["export", *self.flags, f"--output={folder}/elmo"]
            Command(export, folder / "export.log").finish()
            self.flags = [f"--model={folder}/elmo", f"--input={folder}/0.txt", "--part_sentences=2"]

    def start(self, out: Path) -> Command:
        """Start the command with a folder for its output."""
        arguments = [self.name, *self.flags, f"--output={out / self.file}"]
        return Command(arguments, out.with_name(f"{out.name}.log"))

    def undisturbed(self, out: Path) -> Timing:
        """Run the command to its end."""
        return Timing.of(lambda: self.start(out), lambda _: bool(names_in(out)))

    def killed(
        self, out: Path, timing: Timing, n_kills: int, rng: random.Random, expected: dict[str, str]
    ) -> int:
        """Kill the command several times, then let it finish; return how many kills hit. Raises:
        RuntimeError if an output differs from `expected`, the digests of the files."""
        hits = 0
        for _ in range(n_kills):
            before = names_in(out)
            process = self.start(out)
            if rng.random() < STARTING:
                time.sleep(rng.uniform(0, timing.to_start))
            else:
                process.wait_until(lambda _, before=before: names_in(out) != before)
                time.sleep(rng.uniform(0, timing.to_end))
            hits += process.kill()
            found = digests(out)
            for name in expected.keys() & found:
                if found[name] != expected[name]:
                    raise RuntimeError(f"{out}: {name} is incomplete after a kill")
        self.start(out).finish()
        if digests(out) != expected:
            raise RuntimeError(f"{out}: contains {names_in(out)}, expected undisturbed outputs")
        return hits


def names_in(out: Path) -> set[str]:
    """Return the names in a folder, which may be missing."""
    return {path.name for path in out.iterdir()} if out.exists() else set()


def digests(out: Path) -> dict[str, str]:
    """Return the digest of each file by name, and "folder" for a folder."""
    found = {}
    for name in names_in(out):
        path = out / name
        is_file = path.is_file()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else "folder"
    return found


# --- the command line ---


def define_flags() -> None:  # not at module level: a test imports this module
    commands = ["train", "vocab", "embed", "export"]
    flags.DEFINE_multi_enum("command", ["train"], commands, "Commands to kill.")
    flags.DEFINE_integer("schedules", 20, "Number of schedules per command.", 1)
    flags.DEFINE_integer("kills", 5, "Number of kills per schedule.", 1)
    flags.DEFINE_integer("steps", 40, "Steps per run.", 10)
    flags.DEFINE_integer("checkpoint_steps", 2, "Steps between checkpoints.", 1)
    flags.DEFINE_integer("replicas", 1, "Logical CPU devices of a run.", 1)
    flags.DEFINE_integer("workers", 1, "Worker processes of a run.", 1)
    flags.DEFINE_float("tolerance", 0.0, "Largest difference of runs; 0 is bit for bit.", 0)
    flags.DEFINE_integer("seed", 0, "Seed of the schedules.")


def check_training(folder: Path) -> None:
    """Run the schedules of `bilm train`, and exit with 1 if a run differs."""
    numbers = FLAGS.steps, FLAGS.checkpoint_steps, FLAGS.replicas, FLAGS.workers
    training = Training(folder, *numbers)
    options = OPTIONS if FLAGS.workers == 1 else OPTIONS | FOR_WORKERS
    training.write_input({key: value for key, value in options.items() if value is not None})
    timing = training.undisturbed(folder / "straight")
    n_different = 0
    for k in range(FLAGS.schedules):
        run = folder / f"run{k}"
        n_kills = training.killed(run, timing, FLAGS.kills, random.Random(f"{FLAGS.seed}/{k}"))
        difference = training.largest_difference(folder / "straight", run)
        n_different += difference > FLAGS.tolerance
        print(f"schedule {k}: {n_kills} kills, difference {difference:.2g}", flush=True)
    print(f"train: {FLAGS.schedules} schedules, {n_different} differ")
    if n_different:
        sys.exit(1)


def check_outputs(name: str, folder: Path) -> None:
    """Run the schedules of a command that writes files."""
    command = Output(name, folder)
    timing = command.undisturbed(folder / "undisturbed")
    expected, hits = digests(folder / "undisturbed"), 0
    for k in range(FLAGS.schedules):
        rng = random.Random(f"{FLAGS.seed}/{k}")
        hits += command.killed(folder / f"out{k}", timing, FLAGS.kills, rng, expected)
    print(f"{name}: {FLAGS.schedules} schedules, {hits} kills; all outputs equal", flush=True)


def main(_: list[str]) -> None:
    for name in FLAGS.command:
        with tempfile.TemporaryDirectory(prefix="bilm_kill_") as folder:
            if name == "train":
                check_training(Path(folder))
            else:
                check_outputs(name, Path(folder))


if __name__ == "__main__":
    define_flags()
    app.run(main)
