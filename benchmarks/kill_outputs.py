#!/usr/bin/env python
"""Kill commands that write files at random moments and compare their outputs.

Examples:
  python benchmarks/kill_outputs.py --schedules 10
  python benchmarks/kill_outputs.py --commands vocab --schedules 50 --kills 10

Each schedule starts a command --kills times, kills it with SIGKILL at a random moment, usually
while it writes, and then lets it finish. After every kill, each output must be missing or complete.
At the end, the outputs must equal the outputs of an undisturbed command, and the folder must not
contain other files.
"""

import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import kill
from absl import app, flags

FLAGS = flags.FLAGS
COMMANDS = ("vocab", "embed", "export")
POLL_SECONDS = 0.002

Start = Callable[[Path], list]  # returns the command line for an output folder


class Undisturbed(NamedTuple):
    """Digests of a command's files, seconds to its first file, and seconds from then to its end."""

    digests: dict[str, str]
    to_start: float
    to_write: float


def vocab(folder: Path) -> Start:
    """Write a text."""
    rng = random.Random(0)
    words = [f"w{int(rng.paretovariate(0.5)) % 50_000}" for _ in range(200_000)]
    lines = (" ".join(words[i : i + 10]) + "\n" for i in range(0, len(words), 10))
    (folder / "text.txt").write_text("".join(lines))
    flags = [f"--input={folder}/text.txt"]
    return lambda out: ["vocab", *flags, f"--output={out}/v"]


def embed(folder: Path) -> Start:
    """Export a model and write text for it."""
    run = _run(folder)
    model = folder / "model.hdf5"
    finish(start(["export", f"--model={run}", f"--output={model}"]))
    flags = [f"--model={folder}/options.json", f"--weights={model}"]
    flags += [f"--input={folder}/0.txt", "--part_sentences=2"]
    return lambda out: ["embed", *flags, f"--output={out}/corpus.hdf5"]


def export(folder: Path) -> Start:
    """Train a model for two steps."""
    flags = [f"--model={_run(folder)}", "--include_softmax", f"--vocab={folder}/vocab.txt"]
    return lambda out: ["export", *flags, f"--output={out}/model.hdf5"]


def _run(folder: Path) -> Path:
    kill.write_input(folder, n_sentences=300)
    kill.finish(kill.start(folder, folder / "run", 2, 2, 1))
    return folder / "run"


def start(command: list) -> subprocess.Popen:
    """Start a command of bilm."""
    return subprocess.Popen(
        [sys.executable, "-m", "bilm", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> None:
    """Wait for a command to succeed."""
    _, log = process.communicate()
    if process.returncode:
        raise RuntimeError(f"status {process.returncode}:\n{log}")


def digests(out: Path) -> dict[str, str]:
    """Return the digest of each file by name; None for a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in out.iterdir()
    }


def wait_for_writing(process: subprocess.Popen, out: Path) -> None:
    """Wait until a command changes something in a folder, or ends."""
    before = set(out.iterdir()) if out.exists() else set()
    while process.poll() is None and (set(out.iterdir()) if out.exists() else set()) == before:
        time.sleep(POLL_SECONDS)


def undisturbed(command: Start, out: Path) -> Undisturbed:
    """Run a command once without kills."""
    began = time.monotonic()
    process = start(command(out))
    wait_for_writing(process, out)
    writing = time.monotonic()
    finish(process)
    return Undisturbed(digests(out), writing - began, time.monotonic() - writing)


def killed(command: Start, out: Path, expected: Undisturbed, n_kills: int, rng) -> int:
    """Kill a command several times, then let it finish; return how many kills hit.

    Raises: RuntimeError if an output differs from the output of an undisturbed command.
    """
    hits = 0
    for _ in range(n_kills):
        process = start(command(out))
        if rng.random() < kill.STARTING:
            time.sleep(rng.uniform(0, expected.to_start))
        else:
            wait_for_writing(process, out)
            time.sleep(rng.uniform(0, expected.to_write))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hits += process.returncode == -signal.SIGKILL
        found = digests(out) if out.exists() else {}
        cut = [name for name in expected.digests.keys() & found if found[name] != expected[0][name]]
        if cut:
            raise RuntimeError(f"{out}: incomplete files after a kill: {', '.join(cut)}")
    finish(start(command(out)))
    if digests(out) != expected.digests:
        found = ", ".join(sorted(digests(out)))
        raise RuntimeError(f"{out}: contains {found}, expected the undisturbed outputs")
    return hits


def main(argv) -> None:
    del argv
    with tempfile.TemporaryDirectory(prefix="bilm_kill_") as name:
        for command_name in FLAGS.commands:
            folder = Path(name) / command_name
            folder.mkdir()
            command = globals()[command_name](folder)
            expected = undisturbed(command, folder / "undisturbed")
            hits = 0
            for k in range(FLAGS.schedules):
                rng = random.Random(f"{FLAGS.seed}/{k}")
                hits += killed(command, folder / f"out{k}", expected, FLAGS.kills, rng)
            print(
                f"{command_name}: {FLAGS.schedules} schedules, {hits} kills; all outputs equal, "
                "no other files",
                flush=True,
            )


def define_flags() -> None:  # not at module level: a test imports this module
    flags.DEFINE_multi_enum("commands", COMMANDS, COMMANDS, "Commands to kill.")
    flags.DEFINE_integer("schedules", 10, "Number of outputs per command.", 1)
    flags.DEFINE_integer("kills", 3, "Number of kills per output.", 1)
    flags.DEFINE_integer("seed", 0, "Seed of the schedules.")


if __name__ == "__main__":
    define_flags()
    app.run(main)
