#!/usr/bin/env python
"""Time per token as a function of one quantity.

Examples:
  python benchmarks/scaling.py --axis vocabulary --negatives 8192
  python benchmarks/scaling.py --axis batch
  python benchmarks/scaling.py --axis sentence --values 5,10,20,40,80
  python benchmarks/scaling.py --axis replicas --values 1,2

The values alternate step by step, so that noise affects all of them; compare the ratios of medians
to the first value. The batches are random. `sentence` embeds 1,024 tokens in sentences of equal
length; its values are words per sentence.
"""

import statistics
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from bilm.data.vocabulary import PAD_CHAR
from bilm.language_model import BiLM
from bilm.options.run_options import load_run_options
from bilm.training.devices import Devices, make_strategy
from bilm.training.sampling import LogUniformSampler
from bilm.training.step import Trainer
from bilm.training.training_text import as_dataset, batch_signature, replica_batches

VALUES = {
    "vocabulary": [20_000, 200_000, 793_471],
    "batch": [16, 32, 64, 128],
    "unroll": [5, 10, 20, 40],
    "sentence": [4, 8, 16, 32, 64],
    "replicas": [1, 2],
}

FLAGS = flags.FLAGS
flags.DEFINE_enum("axis", "vocabulary", list(VALUES), "Quantity that varies.")
flags.DEFINE_list("values", None, "Values, the reference first [see VALUES].")
flags.DEFINE_integer("negatives", 1024, "Negatives per direction.", 1)
flags.DEFINE_string("options", "small", "Name of the model options.")
flags.DEFINE_integer("batch_size", 32, "Rows of the batch of all replicas.", 1)
flags.DEFINE_integer("n_steps", 9, "Timed steps per value.", 1)

TOKENS = 1024  # tokens per embedding step
N_TYPES = 20_000  # distinct words in the text: windows have about as many as in English


def windows(options, n_rows, n_tokens, random):
    """Yield windows of a text of `N_TYPES` words, for any size of the vocabulary."""
    shape = (n_rows, options.unroll_steps)
    spelled = np.full((N_TYPES, 50), PAD_CHAR, "int32")
    spelled[:, :8] = random.integers(0, 256, size=(N_TYPES, 8))
    while True:
        window = {}
        for suffix in ("", "_reverse"):
            window["next_token_id" + suffix] = zipf(n_tokens, shape, random)
            read = zipf(N_TYPES, shape, random)
            window["token_ids" + suffix] = read % n_tokens
            window["tokens_characters" + suffix] = spelled[read]
        yield window


def zipf(n, shape, random):
    """Draw ids below n from the log-uniform distribution, like the negatives."""
    return (((n + 1.0) ** random.random(shape)).astype("int32") - 1) % n


def training_steps(vocabulary=20_000, batch=None, unroll=20, replicas=1):
    """Yield seconds and tokens of each training step."""
    n_rows = batch or FLAGS.batch_size
    options = load_run_options(FLAGS.options).replace(
        batch_size=n_rows // replicas,
        unroll_steps=unroll,
        n_negative_samples_batch=FLAGS.negatives,
        decay="none",  # a decay requires the length of the run
    )
    devices = Devices(make_strategy(n_gpus=0, cpu_replicas=replicas))
    trainer = Trainer(options, vocabulary, devices)
    sampler = LogUniformSampler(vocabulary, FLAGS.negatives, seed=0)
    random = np.random.default_rng(0)
    signature = batch_signature(
        options.model, options.batch_size, options.unroll_steps, FLAGS.negatives
    )

    def batches():
        text = windows(options, n_rows, vocabulary, random)
        return replica_batches(text, options.model, replicas, sampler)

    iterator = iter(as_dataset(batches, signature, devices.strategy))
    step = 0
    while True:
        start = time.perf_counter()
        trainer.step(iterator, step).global_norm.numpy()
        step += 1
        yield time.perf_counter() - start, n_rows * unroll


def embedding_steps(n_words):
    """Yield seconds and tokens of each embedding step, for sentences of equal length."""
    model = BiLM(load_run_options(FLAGS.options).model, padding=True)
    model.build()
    run = tf.function(lambda ids: model(ids)["layers"])
    ids = np.random.default_rng(0).integers(1, 257, (TOKENS // n_words, n_words, 16))
    ids = tf.constant(ids, tf.int32)
    while True:
        start = time.perf_counter()
        run(ids).numpy()
        yield time.perf_counter() - start, ids.shape[0] * n_words


def measure(values) -> dict[int, float]:
    """Return the median seconds per token of each value."""
    if FLAGS.axis == "sentence":
        steps = {value: embedding_steps(value) for value in values}
    else:
        steps = {value: training_steps(**{FLAGS.axis: value}) for value in values}
    for value in values:
        for _ in range(3):
            next(steps[value])
    times = {value: [] for value in values}
    for _ in range(FLAGS.n_steps):
        for value in values:
            seconds, n_tokens = next(steps[value])
            times[value].append(seconds / n_tokens)
    return {value: statistics.median(times[value]) for value in values}


def main(argv):
    del argv
    values = [int(v) for v in FLAGS.values] if FLAGS.values else VALUES[FLAGS.axis]
    if FLAGS.axis == "replicas":
        make_strategy(n_gpus=0, cpu_replicas=max(values))  # before TensorFlow starts
    found = measure(values)
    print(f"{FLAGS.options}, {FLAGS.batch_size} rows, {FLAGS.negatives} negatives")
    first = found[values[0]]
    for value, seconds in found.items():
        print(
            f"{FLAGS.axis} {value:>9,}: {seconds * 1e6:8.1f} us per token, {seconds / first:.2f} x"
        )


if __name__ == "__main__":
    app.run(main)
