#!/usr/bin/env python
"""Train `novels-en`, the model that is part of the package, and write its folder.

Example:
  python benchmarks/novels_en.py --run novels_run --output bilm/models/novels-en

The text is classics_en of the shared data: English novels and memoirs, one tokenized sentence per
line. The same command resumes an interrupted run. The output contains options.json, weights.hdf5,
weights_softmax.hdf5 in float16 and vocab.txt. The model card README.md is written by hand from the
printed figures.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import common
import h5py
import numpy as np
from absl import app, flags

from bilm.support.files import replacing

FLAGS = flags.FLAGS
flags.DEFINE_string("run", "novels_run", "Folder of the run.")
flags.DEFINE_string("output", "novels-en", "Folder of the model.")
flags.DEFINE_string("options", "auto", "Options of `bilm train`: a name or a file.")
flags.DEFINE_integer("n_steps", 16_000, "Steps of the run.", 1)
flags.DEFINE_integer("eval_steps", 2500, "Steps between evaluations.", 1)
flags.DEFINE_enum("precision", "bfloat16", ["float32", "bfloat16"], "Precision of the run.")
flags.DEFINE_integer("seed", 0, "Seed of the run.")


def bilm(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "bilm", *map(str, arguments)], check=True)


def shorten(softmax_file: Path) -> None:
    """Convert the softmax of an export to compressed float16: less than half of the size."""
    with (
        replacing(softmax_file) as part,
        h5py.File(softmax_file, "r") as whole,
        h5py.File(part, "w") as short,
    ):
        short.attrs.update(whole.attrs)
        for name in ("softmax/W", "softmax/b"):
            value = whole[name][...].astype(np.float16)
            short.create_dataset(name, data=value, compression="gzip", shuffle=True)
        words = whole["vocabulary"][...]
        short.create_dataset("vocabulary", data=words, dtype=h5py.string_dtype())


def main(argv):
    del argv
    vocab_file, output = common.CLASSICS / "vocab.txt", Path(FLAGS.output)
    bilm(
        "train", "--input", common.CLASSICS / "train" / "*", "--vocab", vocab_file,
        "--heldout", common.CLASSICS / "dev.txt", "--output", FLAGS.run,
        "--options", FLAGS.options, "--n_steps", FLAGS.n_steps, "--eval_steps", FLAGS.eval_steps,
        "--seed", FLAGS.seed, "--precision", FLAGS.precision, "--checkpoint_minutes", 5,
    )  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    weights = output / "weights.hdf5"
    bilm("export", "--model", FLAGS.run, "--output", weights, "--include_softmax")
    shorten(output / "weights_softmax.hdf5")
    shutil.copyfile(vocab_file, output / "vocab.txt")
    for path in sorted(output.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    app.run(main)
