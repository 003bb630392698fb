#!/usr/bin/env python
"""Train the model that ships with bilm, `novels-en`, and write its folder.

Examples:
  python benchmarks/novels_en.py --run novels_run --output bilm/models/novels-en
  python benchmarks/novels_en.py --n_steps 500 --run quick_run --output quick

The text is classics_en of the shared data: novels and memoirs in English, one tokenized sentence a
line. The same command continues a run that was stopped. The folder gets options.json, weights.hdf5,
weights_softmax.hdf5, whose values are float16, and vocab.txt; the card is README.md, written by
hand from the figures that this prints.
"""

import json
import shutil
import sys
from pathlib import Path

import common
import h5py
import numpy as np
from absl import app, flags

import bilm
from bilm.files import replacing
from bilm.options import load_run_options
from bilm.training.run import Saving

FLAGS = flags.FLAGS
flags.DEFINE_string("run", "novels_run", "Folder of the run.")
flags.DEFINE_string("output", "novels-en", "Folder of the model.")
flags.DEFINE_string("options", str(Path(__file__).with_name("novels_en.json")), "Of the run.")
flags.DEFINE_integer("n_steps", 5000, "Steps of the run.", 1)
flags.DEFINE_integer("eval_steps", 1000, "Steps between evaluations.", 1)
flags.DEFINE_integer("seed", 0, "Of the run.")


def shorten(softmax_file: Path) -> None:
    """Store the softmax of an export in float16, compressed: half of the size, and less."""
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
    train, vocab_file = str(common.CLASSICS / "train" / "*"), common.CLASSICS / "vocab.txt"
    result = bilm.TrainingRun(
        load_run_options(FLAGS.options), vocab_file, train, FLAGS.run,
        str(common.CLASSICS / "dev.txt"), n_steps=FLAGS.n_steps, eval_steps=FLAGS.eval_steps,
        seed=FLAGS.seed, saving=Saving(minutes=5.0), heldout_sentences=1000,
    ).train()  # fmt: skip
    if not result.finished:
        sys.exit(f"{FLAGS.run}: stopped at step {result.step}; the same command continues")
    output = Path(FLAGS.output)
    output.mkdir(parents=True, exist_ok=True)
    paths = bilm.dump_weights(FLAGS.run, output / "weights.hdf5", include_softmax=True)
    shorten(paths[-1])
    shutil.copyfile(vocab_file, output / "vocab.txt")
    for path in sorted(output.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")
    print(json.dumps({"steps": result.step, **result.heldout._asdict()}))


if __name__ == "__main__":
    app.run(main)
