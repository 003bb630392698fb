#!/usr/bin/env python
"""The full softmax, by which held-out text is measured, against the bare products of its size.

Examples:
  python benchmarks/full_softmax.py
  python benchmarks/full_softmax.py --n_tokens 20000 --n_predictions 5120

Both are timed in turns; the ratio is the median over the rounds. The products leave out all else
that a softmax has to do: biases, exponentials, sums, the score of the target.
"""

import statistics
import time

import common
import tensorflow as tf
from absl import app, flags

from bilm.layers.sampled_softmax import VOCABULARY_CHUNK, SampledSoftmax
from bilm.process import keep_freed_memory, share_cores

FLAGS = flags.FLAGS
flags.DEFINE_integer("n_tokens", 793_471, "Vocabulary size.", 1)
flags.DEFINE_integer("dim", 512, "Width of the vectors that are scored.", 1)
flags.DEFINE_integer("n_predictions", 640, "Predictions per call.", 1)
flags.DEFINE_integer("rounds", 7, "Turns of each.", 1)
flags.DEFINE_string("json", None, "File for the figures.")


def timed(call) -> float:
    start = time.perf_counter()
    call().numpy()
    return time.perf_counter() - start


def main(argv):
    del argv
    share_cores()
    keep_freed_memory()
    layer = SampledSoftmax(FLAGS.n_tokens, FLAGS.dim)
    layer.build()
    hidden = tf.random.normal((FLAGS.n_predictions, FLAGS.dim))
    targets = tf.random.uniform((FLAGS.n_predictions,), 0, FLAGS.n_tokens, tf.int32)
    kernel = tf.convert_to_tensor(layer.kernel)
    chunks = [
        kernel[start : start + VOCABULARY_CHUNK]
        for start in range(0, FLAGS.n_tokens, VOCABULARY_CHUNK)
    ]

    @tf.function(autograph=False)
    def softmax():
        return tf.reduce_mean(layer(hidden, targets))

    @tf.function(autograph=False)
    def products():
        # One number of each is used, so that none is left out.
        return tf.add_n([tf.matmul(hidden, part, transpose_b=True)[0, 0] for part in chunks])

    calls = {"full softmax": softmax, "products alone": products}
    for call in calls.values():
        call().numpy()
    turns = [{name: timed(call) for name, call in calls.items()} for _ in range(FLAGS.rounds)]
    figures = {}
    for name in calls:
        seconds = statistics.median(turn[name] for turn in turns)
        ratio = statistics.median(turn[name] / turn["products alone"] for turn in turns)
        rate = 2 * FLAGS.n_predictions * FLAGS.dim * FLAGS.n_tokens / seconds / 1e9
        figures[name] = {"seconds": seconds, "ratio": ratio, "gflops": rate}
        print(
            f"{name:>14}: {seconds:7.3f} s, {FLAGS.n_predictions / seconds:8,.0f} predictions/s, "
            f"{rate:6,.0f} GFLOP/s, {ratio:.2f} of the products' time"
        )
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
