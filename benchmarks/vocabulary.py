#!/usr/bin/env python
"""What a training step costs against the size of the vocabulary, the negatives being the same.

Example:
  python benchmarks/vocabulary.py --n_tokens 20000,200000,793471 --negatives 8192

The steps of the vocabularies take turns, so that a noisy machine is noisy for all; the ratio of
medians to the first is what to look at. The batches are drawn at random.
"""

import statistics
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from bilm.options import load_run_options
from bilm.pipeline import as_dataset, batch_signature, replica_batches
from bilm.sampling import LogUniformSampler
from bilm.trainer import Trainer
from bilm.training import make_strategy

FLAGS = flags.FLAGS
flags.DEFINE_list("n_tokens", ["20000", "793471"], "Vocabulary sizes, the first for reference.")
flags.DEFINE_integer("negatives", 8192, "Negatives a direction.", 1)
flags.DEFINE_string("options", "small", "The model.")
flags.DEFINE_integer("batch_size", 32, "Rows.", 1)
flags.DEFINE_integer("n_steps", 15, "Steps of each vocabulary that are timed.", 1)


def windows(options, n_tokens, random):
    shape = (options.batch_size, options.unroll_steps)
    while True:
        window = {}
        for suffix in ("", "_reverse"):
            # Frequencies as in text: the same law that the negatives are drawn by.
            words = random.random((2, *shape))
            words = ((n_tokens + 1.0) ** words).astype("int32") - 1
            window["token_ids" + suffix], window["next_token_id" + suffix] = words % n_tokens
            chars = random.integers(0, 256, size=(*shape, 50)).astype("int32")
            chars[..., 8:] = 260
            window["tokens_characters" + suffix] = chars
        yield window


def make_steps(n_tokens):
    options = load_run_options(FLAGS.options).replace(
        batch_size=FLAGS.batch_size, n_negative_samples_batch=FLAGS.negatives
    )
    strategy = make_strategy()
    trainer = Trainer(options, n_tokens, strategy)
    sampler = LogUniformSampler(n_tokens, FLAGS.negatives, seed=0)
    random = np.random.default_rng(0)
    signature = batch_signature(
        options.model, options.batch_size, options.unroll_steps, FLAGS.negatives
    )

    def batches():
        return replica_batches(windows(options, n_tokens, random), options.model, 1, sampler)

    iterator = iter(as_dataset(batches, signature, strategy))
    step = 0
    while True:
        start = time.perf_counter()
        trainer.step(iterator, step).global_norm.numpy()
        step += 1
        yield time.perf_counter() - start


def main(argv):
    del argv
    sizes = [int(n) for n in FLAGS.n_tokens]
    steps = {n: make_steps(n) for n in sizes}
    for n in sizes:
        for _ in range(3):
            next(steps[n])
    times = {n: [] for n in sizes}
    for _ in range(FLAGS.n_steps):
        for n in sizes:
            times[n].append(next(steps[n]))
    medians = {n: statistics.median(times[n]) for n in sizes}
    print(
        f"{FLAGS.options}, {FLAGS.batch_size} rows, {FLAGS.negatives} negatives, {tf.__version__}"
    )
    for n in sizes:
        ratio = medians[n] / medians[sizes[0]]
        print(f"{n:>9,} words: {medians[n] * 1e3:8.1f} ms a step, {ratio:.2f} x")


if __name__ == "__main__":
    app.run(main)
