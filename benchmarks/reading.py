#!/usr/bin/env python
"""Processor time of reading the text of training steps: text, distinct words, negatives.

Example: compare two versions, of which the other is in PATH/TO/OTHER
  for k in 1 2 3; do
    PYTHONPATH=PATH/TO/OTHER python benchmarks/reading.py; PYTHONPATH=. python benchmarks/reading.py
  done
"""

import statistics
import time
from itertools import islice

import common
from absl import flags

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import vocabulary_of
from bilm.options.run_options import load_run_options
from bilm.training.training_text import TrainingText

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 128, "Rows per step.", 1)
flags.DEFINE_list("negatives", ["1024", "8192"], "Negatives per direction.")
flags.DEFINE_integer("n_tokens", None, "Vocabulary size; by default that of the text.", 10)
flags.DEFINE_integer("n_steps", 100, "Steps to read after as many others.", 1)


def read(folder):
    figures = {}
    files = common.corpus(folder, FLAGS.n_tokens)
    for n_negatives in map(int, FLAGS.negatives):
        options = load_run_options(FLAGS.model).replace(
            batch_size=FLAGS.batch_size, n_negative_samples_batch=n_negatives
        )
        vocab = vocabulary_of(files.vocab_file, options.model, n_tokens=None)
        text = TrainingText(options, vocab, resolve_shards(files.train), seed=0)
        n_rows, n_columns = options.batch_size, options.unroll_steps
        windows = (window for window, _ in text.reader.iter_placed_batches(n_rows, n_columns))
        for step, window in enumerate(islice(windows, FLAGS.n_steps)):
            text.batch(window, step, 0)
        seconds: dict[str, list[float]] = {"windows": [], "batches": [], "all": []}
        for step in range(FLAGS.n_steps):
            start = time.process_time()
            window = next(windows)
            read = time.process_time()
            text.batch(window, step, 0)
            end = time.process_time()
            seconds["windows"].append(read - start)
            seconds["batches"].append(end - read)
            seconds["all"].append(end - start)
        for part, of_steps in seconds.items():
            of_token = statistics.median(of_steps) / (n_rows * n_columns)
            figures[f"{part}, {n_negatives}"] = 1e6 * of_token
    return "microseconds of processor time per token of reading", figures


if __name__ == "__main__":
    common.run(read)
