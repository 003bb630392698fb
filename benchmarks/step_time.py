#!/usr/bin/env python
"""Seconds of a training step for several recipes, in turns in one process.

Examples:
  python benchmarks/step_time.py --recipe 'adam:optimizer=adam' --recipe 'muon:optimizer=muon'
  python benchmarks/step_time.py --options small --recipe 'float32:' \\
      --recipe 'bfloat16:precision=bfloat16'

A recipe is a name and keys of options.json that replace keys of --options, as in
time_to_perplexity.py; `precision` may be one of them. The ratio compares a recipe with the first
one: the median over rounds of its time divided by the first recipe's time. The text is classics_en
of the shared data, or Python's documentation if that is missing.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
from absl import app, flags, logging

from bilm.options.run_options import load_run_options

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("recipe", ["adam:optimizer=adam"], "Name, colon, key=value pairs.")
flags.DEFINE_string("options", str(Path(__file__).with_name("novels_adam.json")), "Name or path.")
flags.DEFINE_integer("n_tokens", None, "Vocabulary size [all words of the text].", 10)
flags.DEFINE_integer("rounds", 9, "Rounds; a round times each recipe once.", 1)
flags.DEFINE_integer("steps", 5, "Steps of a turn.", 1)
flags.DEFINE_integer("first_step", 0, "Number of the first step.", 0)


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    runs, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in map(common.recipe, FLAGS.recipe):
            precision = changes.pop("precision", "float32")
            options = load_run_options(FLAGS.options).replace(**changes)
            runs[name] = common.training_run(options, Path(folder), FLAGS.n_tokens, precision)[:2]
            seconds[name] = []
        for k in range(FLAGS.rounds + 1):  # the first round compiles
            for name, (trainer, iterator) in runs.items():
                start = time.perf_counter()
                for step in range(FLAGS.steps):
                    number = FLAGS.first_step + k * FLAGS.steps + step
                    trainer.step(iterator, number).global_norm.numpy()
                if k:
                    seconds[name].append((time.perf_counter() - start) / FLAGS.steps)
    first = seconds[next(iter(runs))]
    for name, own in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(own, first, strict=True))
        print(f"{name:>16}: {1000 * statistics.median(own):,.0f} ms, ratio {ratio:.3f}")


if __name__ == "__main__":
    app.run(main)
