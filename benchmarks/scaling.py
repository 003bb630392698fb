#!/usr/bin/env python
"""How the time per token depends on one quantity while all others stay the same.

Examples:
  python benchmarks/scaling.py --axis vocabulary --negatives 8192
  python benchmarks/scaling.py --axis batch --plot docs/scaling_batch.png
  python benchmarks/scaling.py --axis sentence --values 5,10,20,40,80
  python benchmarks/scaling.py --axis replicas --values 1,2

The values alternate step by step, so that noise of the machine affects all of them; compare the
ratios of medians to the first value. The batches are drawn at random. `sentence` embeds 1,024
tokens in sentences of equal length; its values are words per sentence. --plot needs matplotlib.
"""

import statistics
import time

import common
import numpy as np
import tensorflow as tf
from absl import app, flags

from bilm.data.vocabulary import PAD_CHAR
from bilm.language_model import BiLM
from bilm.options import load_run_options
from bilm.training.devices import Devices, make_strategy
from bilm.training.pipeline import as_dataset, batch_signature, replica_batches
from bilm.training.sampling import LogUniformSampler
from bilm.training.step import Trainer

VALUES = {
    "vocabulary": [20_000, 200_000, 793_471],
    "batch": [16, 32, 64, 128],
    "unroll": [5, 10, 20, 40],
    "sentence": [4, 8, 16, 32, 64],
    "replicas": [1, 2],
}

FLAGS = flags.FLAGS
flags.DEFINE_enum("axis", "vocabulary", list(VALUES), "Quantity to change.")
flags.DEFINE_list("values", None, "Values of the axis, the reference first [a list for each axis].")
flags.DEFINE_integer("negatives", 1024, "Negatives per direction.", 1)
flags.DEFINE_string("options", "small", "Options of the model, by name.")
flags.DEFINE_integer("batch_size", 32, "Rows of the whole batch.", 1)
flags.DEFINE_integer("n_steps", 9, "Timed steps per value.", 1)
flags.DEFINE_string("plot", None, "PNG file for the plot.")

TOKENS = 1024  # embedded at a time
N_TYPES = 20_000  # distinct words in the text; a window then has about as many as in English


def windows(options, n_rows, n_tokens, random):
    """Yield windows of a text of `N_TYPES` words, whatever the size of the vocabulary."""
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
    """Draw ids below n by the log-uniform law, like words in text and like the negatives."""
    return (((n + 1.0) ** random.random(shape)).astype("int32") - 1) % n


def training_steps(vocabulary=20_000, batch=None, unroll=20, replicas=1):
    """Yield the seconds of each step, and the tokens per step."""
    n_rows = batch or FLAGS.batch_size
    options = load_run_options(FLAGS.options).replace(
        batch_size=n_rows // replicas,
        unroll_steps=unroll,
        n_negative_samples_batch=FLAGS.negatives,
        decay="none",  # it needs the length of the run
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
    """Yield the seconds to embed sentences of one length, and the number of tokens."""
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
    """Return the median seconds per token, by value."""
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


def plot(found: dict[int, float], path: str) -> None:
    """Plot the time per token against the values."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    axes.plot(list(found), [1e6 * seconds for seconds in found.values()], marker="o")
    axes.set(xscale="log", xlabel=FLAGS.axis, ylabel="microseconds per token")
    axes.set_ylim(0, 1.1e6 * max(found.values()))
    axes.set_xticks(list(found), [f"{value:,}" for value in found], minor=False)
    axes.minorticks_off()
    rate = common.gemm_rates()["float32"]
    axes.set_title(f"{FLAGS.options}, {rate:.0f} GFLOP/s at 2048^3", fontsize=9)
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


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
    if FLAGS.plot:
        plot(found, FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
