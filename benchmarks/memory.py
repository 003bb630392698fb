#!/usr/bin/env python
"""Peak memory of training and embedding for texts and sequences of different lengths.

Examples:
  python benchmarks/memory.py --what train                        # files of 10 MB and 1 GB
  python benchmarks/memory.py --what proteins --options original  # a sequence of 2,000 to 35,000

The text is random: words drawn by Zipf's law, 20 per sentence, or evenly drawn residues in a FASTA
file with one sequence, embedded with --pool mean. Each size is one command in a separate process.
Peak memory is the maximum resident set size.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
import numpy as np
from absl import app, flags

from bilm.data.vocabulary import MARKS
from bilm.inference import BACKENDS

FLAGS = flags.FLAGS
flags.DEFINE_enum("what", "train", ["train", "embed", "proteins"], "Command to run.")
flags.DEFINE_list("megabytes", ["10", "1000"], "Sizes of the text.")
flags.DEFINE_list("residues", ["2000", "8000", "35000"], "Lengths of the protein sequence.")
flags.DEFINE_string("options", "tiny", "Name of the model options.")
flags.DEFINE_integer("n_steps", 300, "Training steps.", 1)
flags.DEFINE_enum("backend", None, BACKENDS, "Backend of embedding [the choice of bilm embed].")
flags.DEFINE_string("precision", "float32", "Precision of embedding.")

N_WORDS = 20_000
# Linux counts the memory of the process that starts a command as a part of the command's peak.
# This process is large, so a small one starts the command and measures it.
MEASURE = """import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)"""


def write_text(path: Path, megabytes: float) -> None:
    """Write a text in blocks of sentences."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(N_WORDS)])
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            ids = rng.zipf(1.2, size=(5_000, 20)) % N_WORDS
            file.writelines(" ".join(row) + "\n" for row in words[ids])
        file.truncate(int(megabytes * 1e6))


def write_sequence(path: Path, n_residues: int) -> None:
    """Write a FASTA file with one sequence."""
    residues = np.random.default_rng(0).choice(list("ACDEFGHIKLMNPQRSTVWY"), n_residues)
    path.write_text(f">random\n{''.join(residues)}\n")


def command(folder: Path, text: Path, size: str) -> list[str]:
    """Return the arguments of `bilm`."""
    if FLAGS.what == "train":
        return [
            "train", f"--input={text}", f"--vocab={folder}/vocab.txt",
            f"--output={folder}/run{size}",
            f"--options={FLAGS.options}", f"--n_steps={FLAGS.n_steps}", "--n_gpus=0",
        ]  # fmt: skip
    pooled = ["--layers=sum", "--pool=mean"] if FLAGS.what == "proteins" else []
    return [
        "embed", f"--model={folder}/options.json", f"--weights={folder}/weights.hdf5",
        f"--input={text}", f"--output={folder}/out.hdf5", f"--precision={FLAGS.precision}",
        *([f"--backend={FLAGS.backend}"] if FLAGS.backend else []), *pooled,
    ]  # fmt: skip


def peak_megabytes(arguments: list[str]) -> float:
    """Run a command of bilm; return its peak memory in MB."""
    measured = [sys.executable, "-S", "-c", MEASURE, sys.executable, "-m", "bilm", *arguments]
    found = subprocess.run(measured, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"{arguments[0]}: status {found.returncode}: {found.stderr[-2000:]}")
    return int(found.stdout.split()[-1]) / 1e3 * 1.024


def main(_):
    peaks, is_text = {}, FLAGS.what != "proteins"
    unit, ending = ("MB", "txt") if is_text else ("residues", "fasta")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [*MARKS, *(f"w{i}" for i in range(N_WORDS))]
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        if FLAGS.what != "train":
            common.random_model(FLAGS.options, folder)
        for size in FLAGS.megabytes if is_text else FLAGS.residues:
            text = folder / f"text{size}.{ending}"
            if is_text:
                write_text(text, float(size))
            else:
                write_sequence(text, int(size))
            start = time.perf_counter()
            peaks[size] = peak_megabytes(command(folder, text, size))
            seconds = time.perf_counter() - start
            print(f"{FLAGS.what}, {size} {unit}: peak {peaks[size]:,.0f} MB in {seconds:.1f} s")
            text.unlink()
    print(json.dumps({"what": FLAGS.what, "peak_mb": peaks}))


if __name__ == "__main__":
    app.run(main)
