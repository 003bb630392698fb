#!/usr/bin/env python
"""Peak memory of training and embedding for texts, and of pooling for sequences, of any length.

Examples:
  memory.py --what train                       # a shard of 10 MB and one of 1 GB
  memory.py --what embed --megabytes 0.1,1     # bin/dump_embeddings.py on 0.1 and on 1 MB
  memory.py --what proteins --options original # one sequence of 2,000, 8,000, 35,000 residues

The text is drawn at random: words by Zipf's law, 20 per sentence; or residues evenly, in a FASTA
file with one sequence, of whose vectors the mean is stored. Each size runs the real command
in a process of its own; peak memory is the largest resident size.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_enum("what", "train", ["train", "embed", "proteins"], "Command to run.")
flags.DEFINE_list("megabytes", ["10", "1000"], "Sizes of the text.")
flags.DEFINE_list("residues", ["2000", "8000", "35000"], "Lengths of the sequence of proteins.")
flags.DEFINE_string("options", "tiny", "Options of the model, by name.")
flags.DEFINE_integer("n_steps", 300, "Steps of training.", 1)

ROOT = Path(__file__).resolve().parent.parent
N_WORDS = 20_000


def write_text(path: Path, megabytes: float) -> None:
    """Write a shard in blocks of sentences."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(N_WORDS)])
    with path.open("w") as file:
        while file.tell() < megabytes * 1e6:
            ids = rng.zipf(1.2, size=(5_000, 20)) % N_WORDS
            file.writelines(" ".join(row) + "\n" for row in words[ids])
        file.truncate(int(megabytes * 1e6))


def write_sequence(path: Path, n_residues: int) -> None:
    """Write one sequence of a FASTA file."""
    residues = np.random.default_rng(0).choice(list("ACDEFGHIKLMNPQRSTVWY"), n_residues)
    path.write_text(f">drawn\n{''.join(residues)}\n")


def make_model(folder: Path) -> None:
    """Write a vocabulary for training, or an export with random weights for embedding."""
    words = "".join(f"{w}\n" for w in ["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(N_WORDS))])
    (folder / "vocab.txt").write_text(words)
    if FLAGS.what != "train":
        import random_model

        random_model.write(FLAGS.options, folder)


def peak_megabytes(arguments: dict) -> float:
    """Run a command of bin/; return its peak memory in MB."""
    name = "train_elmo.py" if FLAGS.what == "train" else "dump_embeddings.py"
    command = [sys.executable, ROOT / "bin" / name, *(f"--{k}={v}" for k, v in arguments.items())]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            log.seek(0)
            raise RuntimeError(f"{name} ended with status {status}: {log.read().decode()[-2000:]}")
    return usage.ru_maxrss / 1e3 * 1.024


def flags_of_run(folder: Path, text: Path, size: str) -> dict:
    """Return the flags of the command, by name."""
    if FLAGS.what == "train":
        return {
            "train_prefix": text,
            "vocab_file": folder / "vocab.txt",
            "save_dir": folder / f"run{size}",
            "options": FLAGS.options,
            "n_steps": FLAGS.n_steps,
            "n_gpus": 0,
        }
    pooled = {"layers": "sum", "pool": "mean"} if FLAGS.what == "proteins" else {}
    return {
        "dataset_file": text,
        "options_file": folder / "options.json",
        "weight_file": folder / "weights.hdf5",
        "outfile": folder / "out.hdf5",
        **pooled,
    }


def main(argv):
    del argv
    peaks, is_text = {}, FLAGS.what != "proteins"
    unit, ending = ("MB", "") if is_text else ("residues", ".fasta")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder)
        for size in FLAGS.megabytes if is_text else FLAGS.residues:
            text = folder / f"text{size}{ending}"
            if is_text:
                write_text(text, float(size))
            else:
                write_sequence(text, int(size))
            start = time.perf_counter()
            peaks[size] = peak_megabytes(flags_of_run(folder, text, size))
            seconds = time.perf_counter() - start
            print(f"{FLAGS.what}, {size} {unit}: peak {peaks[size]:,.0f} MB in {seconds:.0f} s")
            text.unlink()
    print(json.dumps({"what": FLAGS.what, "peak_mb": peaks}))


if __name__ == "__main__":
    app.run(main)
