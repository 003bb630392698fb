#!/usr/bin/env python
"""Tokens per second of the LSTMs of an embedder in float32, bfloat16 and int8, measured in turns.

Examples:
  python benchmarks/int8.py --model small
  python benchmarks/int8.py --model original --n_times 3 --json original.json

The model has random weights, and token vectors are random: the time does not include characters.
Each case is one window of steps: one sentence, a few sentences, a full batch. Reports the shortest
of all times, because other programs slow down some rounds. Requires the extra onnx.
"""

import tempfile
import time
from pathlib import Path

import common
import keras
import numpy as np
from absl import app, flags, logging

from bilm.embedding.embedder import PackedRunner
from bilm.layers.functional import INFERENCE_PRECISIONS
from bilm.storage.stored_model import open_model

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "Size of the model.")
flags.DEFINE_integer("n_times", 5, "Rounds.", 1)
flags.DEFINE_multi_integer("rows", [1, 8, 64], "Numbers of sentences that run in parallel.", 1)
flags.DEFINE_integer("n_steps", 20, "Words per sentence.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

N_WORDS = 2000  # distinct words


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        stored = open_model(*common.random_model(FLAGS.model, Path(name)))
        runners = {p: PackedRunner(stored.build(p, frozen=True), 1) for p in INFERENCE_PRECISIONS}
    width = stored.options.lstm.projection_dim
    table = keras.ops.convert_to_tensor(random.normal(size=(N_WORDS, width)).astype(np.float32))
    figures = {}
    for n_rows in FLAGS.rows:
        shape = n_rows, FLAGS.n_steps
        places = {d: random.integers(0, N_WORDS, shape) for d in stored.options.directions}
        seconds = {precision: [] for precision in runners}
        for _ in range(FLAGS.n_times + 1):
            for precision, runner in runners.items():
                seconds[precision].append(timed(runner, table, places))
        for precision, times in seconds.items():
            rate = n_rows * FLAGS.n_steps / min(times[1:])
            figures[f"{precision}, rows {n_rows}"] = rate
    common.report(f"LSTMs of {FLAGS.model}, tokens/s", figures, FLAGS.json)


def timed(runner, table, places) -> float:
    """Return the seconds of a window from zero state."""
    shape = next(iter(places.values())).shape
    places = {d: keras.ops.convert_to_tensor(p.astype(np.int32)) for d, p in places.items()}
    fresh = keras.ops.convert_to_tensor(np.zeros(shape, bool))
    state = runner.model.flatten_state(runner.model.zero_state(shape[0]))
    start = time.perf_counter()
    layers, _ = runner._run_steps(table, places, fresh, state)
    for values in layers.values():
        keras.ops.convert_to_numpy(values)
    return time.perf_counter() - start


if __name__ == "__main__":
    app.run(main)
