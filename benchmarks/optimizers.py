#!/usr/bin/env python
"""Time of a training step with each optimizer, measured in turns.

Examples:
  python benchmarks/optimizers.py
  python benchmarks/optimizers.py --model small --steps 20 --json optimizers.json

The default is the 512/128 model of benchmarks/state.py: 64 x 20, 1,024 negatives. All optimizers
train in one process, a few steps each in turn, so that what else the machine does slows all alike;
the ratio is the median of the rounds'.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
from absl import app, flags, logging
from training_run import training_run

from bilm.options import RunOptions, load_run_options
from bilm.training.optimizer import OPTIMIZERS

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Options, by name or path [those of benchmarks/state.py].")
flags.DEFINE_integer("n_tokens", 20_000, "Vocabulary size.", 10)
flags.DEFINE_integer("rounds", 9, "Turns of each optimizer.", 1)
flags.DEFINE_integer("steps", 10, "Steps in a turn.", 1)
flags.DEFINE_string("json", None, "File for the figures.")

BASE = "adagrad"  # what the others are compared with


def time_turn(run, first_step: int) -> float:
    """Take the steps of a turn; return the median seconds per step."""
    seconds = []
    for step in range(first_step, first_step + FLAGS.steps):
        start = time.perf_counter()
        run.trainer.step(run.iterator, step).global_norm.numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    options = load_run_options(FLAGS.model) if FLAGS.model else RunOptions.from_dict(common.MIDDLE)
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: training_run(
                options.replace(optimizer=name), Path(folder), FLAGS.n_tokens, "float32"
            )
            for name in OPTIMIZERS
        }
        for run in runs.values():
            time_turn(run, 0)  # compiles
        turns = [
            {name: time_turn(run, (k + 1) * FLAGS.steps) for name, run in runs.items()}
            for k in range(FLAGS.rounds)
        ]
    figures = {}
    for name in OPTIMIZERS:
        ratio = statistics.median(turn[name] / turn[BASE] for turn in turns)
        seconds = statistics.median(turn[name] for turn in turns)
        figures[name] = {"ms": 1e3 * seconds, "ratio": ratio}
        print(f"{name:>10}: {1e3 * seconds:8.1f} ms per step, {ratio:.3f} of {BASE}'s")
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
