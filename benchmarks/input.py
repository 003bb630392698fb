#!/usr/bin/env python
"""Batches per second of the input pipeline of training, for several replicas and without training.

Examples:
  python benchmarks/input.py
  taskset -c 0,1 python benchmarks/input.py --replicas 8 --batch_size 128
  python benchmarks/input.py --negatives 0                  # full softmax: no negatives are drawn

Each step reads one batch per replica: reading, shuffling, ids, distinct tokens, negatives, and the
copies to the devices, which are logical CPU devices here. If a GPU needs s seconds per step, the
pipeline must yield 1 / s steps per second. The text is classics_en of the shared data, or Python's
documentation if that is missing.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
import tensorflow as tf
from absl import app, flags, logging

from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.options.run_options import load_run_options
from bilm.training.devices import Devices, make_strategy
from bilm.training.training_text import TrainingText

WARM_UP = 20  # steps, more than are prefetched
PARTS = 5  # the median of these parts of the time is reported

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "original", "Name of the model options.")
flags.DEFINE_integer("replicas", 8, "Number of replicas.", 1)
flags.DEFINE_integer("batch_size", 128, "Rows per replica.", 1)
flags.DEFINE_integer("negatives", 8192, "Negatives per direction; 0 for the full softmax.", 0)
flags.DEFINE_float("seconds", 20.0, "Seconds for which steps are timed.", 0.1)
flags.DEFINE_string("json", None, "JSON file for the figures.")


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    options = load_run_options(FLAGS.model).replace(
        batch_size=FLAGS.batch_size,
        n_negative_samples_batch=max(FLAGS.negatives, 1),
        sample_softmax=FLAGS.negatives > 0,
    )
    devices = Devices(make_strategy(n_gpus=0, cpu_replicas=FLAGS.replicas))
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(Path(folder))
        length = options.char_cnn.max_characters_per_token
        vocab = UnicodeCharsVocabulary(text.vocab_file, length)
        pipeline = TrainingText(options, vocab, resolve_shards(text.train), seed=0)
        batches = pipeline.batches(devices, None)
        for _ in range(WARM_UP):
            next(batches)
        rates = [steps_per_s(batches, FLAGS.seconds / PARTS) for _ in range(PARTS)]
        pipeline.close()
    rate = statistics.median(rates)
    n_tokens = FLAGS.replicas * FLAGS.batch_size * options.unroll_steps
    values = {
        "steps_per_s": rate,
        "batches_per_s": rate * FLAGS.replicas,
        "tokens_per_s": rate * n_tokens,
        "slowest_steps_per_s": min(rates),
        "peak_memory_mb": common.peak_memory_mb(),
    }
    size = f"{FLAGS.replicas} replicas of {FLAGS.batch_size} x {options.unroll_steps}"
    common.report(f"input, {FLAGS.model}, {size}, {FLAGS.negatives} negatives", values, FLAGS.json)


def steps_per_s(batches, seconds: float) -> float:
    """Return the rate at which the batches of a step are read."""
    n_steps, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        tf.nest.flatten(next(batches), expand_composites=True)
        n_steps += 1
    return n_steps / (time.perf_counter() - start)


if __name__ == "__main__":
    app.run(main)
