#!/usr/bin/env python
"""Tokens per second of training: whole steps with pipeline, dropout, clipping and optimizer.

Example:
  python benchmarks/train.py --model original --precision bfloat16 --batch_size 128

The text is classics_en of the shared data, or Python's documentation if that is missing. Machines
differ and are noisy: compare tokens/s per GFLOP/s of the 2048^3 float32 product in the same run.
"""

import statistics
from itertools import islice

import common
import numpy as np
from absl import flags

from bilm.options.run_options import load_run_options
from bilm.precisions import PRECISIONS

SAMPLE = 50  # batches whose distinct tokens are counted

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 32, "Rows per step.", 1)
flags.DEFINE_integer("negatives", 1024, "Negatives per direction.", 1)
flags.DEFINE_integer("n_tokens", 20_000, "Vocabulary size.", 10)
flags.DEFINE_enum("precision", "float32", PRECISIONS, "Precision of the inputs of matrix products.")
flags.DEFINE_float("seconds", 60.0, "Seconds for which steps are timed.", 1.0)


def n_distinct(batches) -> int:
    """Return the number of distinct tokens in the first replica's batch, in both directions."""
    return len(np.unique(np.stack(list(batches[0]["places"].values()))))


def train(folder):
    options = load_run_options(FLAGS.model).replace(
        batch_size=FLAGS.batch_size, n_negative_samples_batch=FLAGS.negatives
    )
    run = common.training_run(options, folder, FLAGS.n_tokens, FLAGS.precision)
    run.trainer.step(next(run.batches), 0).global_norm.numpy()
    first_step_s = common.seconds_since_start()
    before = common.gemm_rates()
    seconds, _ = run.steps(FLAGS.seconds)
    after = common.gemm_rates()
    distinct = statistics.mean(map(n_distinct, islice(run.batches, SAMPLE)))

    n_tokens = options.batch_size * options.unroll_steps
    rate = n_tokens / statistics.median(seconds[2:])
    forward = common.useful_flops(options, distinct / n_tokens)
    forward += 2 * 2 * options.lstm.projection_dim * FLAGS.negatives
    figures = common.figures(rate, 3 * forward, FLAGS.precision, before, after, first_step_s)
    size = f"{options.batch_size} x {options.unroll_steps}"
    title = f"train {FLAGS.model}, {FLAGS.precision}, {size}, {len(seconds)} steps"
    return title, figures


if __name__ == "__main__":
    common.run(train)
