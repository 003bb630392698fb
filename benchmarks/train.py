#!/usr/bin/env python
"""Tokens a second of training: the whole step with pipeline, dropout, clipping and optimizer.

Examples:
  python benchmarks/train.py --model small
  python benchmarks/train.py --model original --precision bfloat16 --batch_size 128
  python benchmarks/train.py --model small --profile --json small.json

The text is classics_en of the shared data, or the demo's where that is not there. Machines differ
and are noisy: compare tokens/s per GFLOP/s of the 2048^3 float32 product measured in the same run.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
import numpy as np
from absl import app, flags, logging
from step_parts import time_parts

from bilm.dataset import BidirectionalLMDataset
from bilm.layers.functional import PRECISIONS
from bilm.options import load_run_options
from bilm.pipeline import as_dataset, batch_signature, replica_batches
from bilm.sampling import LogUniformSampler
from bilm.trainer import Trainer
from bilm.training import make_strategy
from bilm.vocabulary import UnicodeCharsVocabulary

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "The published sizes.")
flags.DEFINE_integer("batch_size", 32, "Rows.", 1)
flags.DEFINE_integer("negatives", 1024, "Negatives a direction.", 1)
flags.DEFINE_integer("n_tokens", 20_000, "Vocabulary size.", 10)
flags.DEFINE_enum("precision", "float32", PRECISIONS, "Of the operands of products.")
flags.DEFINE_bool("profile", False, "Time the parts of a step too, each alone.")
flags.DEFINE_float("seconds", 60.0, "How long steps are timed.", 1.0)
flags.DEFINE_string("json", None, "File for the figures.")


def profile(trainer, batches, step_s):
    """Print the parts of a step, each timed alone, beside the whole."""
    parts = time_parts(trainer, batches)
    computed = sum(seconds for name, seconds in parts.items() if name != "input")
    for name, seconds in parts.items():
        share = "beside the step" if name == "input" else f"{seconds / computed:6.1%}"
        print(f"{name:>24}: {seconds * 1e3:8.1f} ms  {share}")
    print(
        f"{'sum without input':>24}: {computed * 1e3:8.1f} ms, a whole step {step_s * 1e3:.1f} ms"
    )


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    options = load_run_options(FLAGS.model).replace(
        batch_size=FLAGS.batch_size, n_negative_samples_batch=FLAGS.negatives
    )
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(Path(folder), FLAGS.n_tokens)
        max_length = options.char_cnn.max_characters_per_token
        vocab = UnicodeCharsVocabulary(text.vocab_file, max_length, validate_file=True)
        strategy = make_strategy()
        trainer = Trainer(options, vocab.size, strategy, precision=FLAGS.precision)
        sampler = LogUniformSampler(vocab.size, FLAGS.negatives, seed=0)
        n_distinct = []

        def batches():
            dataset = BidirectionalLMDataset(text.train, vocab, shuffle_on_load=True)
            windows = dataset.iter_batches(options.batch_size, options.unroll_steps)
            for batch in replica_batches(windows, options.model, 1, sampler):
                n_distinct.append(sum(len(np.unique(p)) for p in batch["places"].values()))
                yield batch

        signature = batch_signature(
            options.model, options.batch_size, options.unroll_steps, FLAGS.negatives
        )
        iterator = iter(as_dataset(batches, signature, strategy))
        trainer.step(iterator, 0).global_norm.numpy()
        first_step_s = common.seconds_since_start()
        before = common.gemm_rates()
        seconds, end = [], time.perf_counter() + FLAGS.seconds
        while time.perf_counter() < end or len(seconds) < 5:
            start = time.perf_counter()
            trainer.step(iterator, len(seconds) + 1).global_norm.numpy()
            seconds.append(time.perf_counter() - start)
        after = common.gemm_rates()
        if FLAGS.profile:
            profile(trainer, batches(), statistics.median(seconds[2:]))

    n_tokens = options.batch_size * options.unroll_steps
    rate = n_tokens / statistics.median(seconds[2:])
    forward = common.useful_flops(options, statistics.mean(n_distinct) / n_tokens)
    forward += 2 * 2 * options.lstm.projection_dim * FLAGS.negatives
    rates = {name: (before[name] + after[name]) / 2 for name in before}
    figures = common.figures(rate, 3 * forward, FLAGS.precision, rates, first_step_s)
    size = f"{options.batch_size} x {options.unroll_steps}"
    title = f"train {FLAGS.model}, {FLAGS.precision}, {size}, {len(seconds)} steps"
    common.report(title, figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
