#!/usr/bin/env python
"""Tokens per second of an embedder in float32, bfloat16 and int8, measured in turns.

Example:
  python benchmarks/int8.py --model original --n_times 3 --json original.json

The model has random weights. The first case embeds the text of embed.py with an empty cache of
token vectors, and reports the median of the rounds. The other cases are the LSTMs alone, with
random token vectors, in one window of steps: one sentence, a few sentences, a full batch. They
report the shortest time, because other programs slow down some rounds. Requires the extra onnx.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
import numpy as np
from absl import app, flags, logging

from bilm.embedding.embedder import ElmoEmbedder
from bilm.inference.backend import open_backend
from bilm.precisions import INFERENCE_PRECISIONS
from bilm.storage.stored_model import open_model

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "Size of the model.")
flags.DEFINE_integer("n_times", 5, "Rounds.", 1)
flags.DEFINE_multi_integer("rows", [1, 8, 64], "Numbers of sentences that run in parallel.", 1)
flags.DEFINE_integer("n_steps", 20, "Words per sentence of the LSTMs.", 1)
flags.DEFINE_integer("n_sentences", 640, "Sentences of the text; 0 to skip it.", 0)
flags.DEFINE_integer("batch_tokens", 3328, "Tokens of the text that are computed at a time.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

N_WORDS = 2000  # distinct words


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = common.random_model(FLAGS.model, folder)
        settings = {"batch_tokens": FLAGS.batch_tokens}
        embedders = {p: ElmoEmbedder(*files, precision=p, **settings) for p in INFERENCE_PRECISIONS}
        text = common.sentences(common.corpus(folder).heldout)[: FLAGS.n_sentences]
    figures = embedding_figures(embedders, text) if text else {}
    backends = {p: open_backend(open_model(*files), precision=p) for p in INFERENCE_PRECISIONS}
    options = embedders["float32"].options
    width = options.lstm.projection_dim
    table = random.normal(size=(N_WORDS, width)).astype(np.float32)
    for n_rows in FLAGS.rows:
        shape = n_rows, FLAGS.n_steps
        places = {d: random.integers(0, N_WORDS, shape) for d in options.directions}
        seconds = {precision: [] for precision in backends}
        for _ in range(FLAGS.n_times + 1):
            for precision, backend in backends.items():
                seconds[precision].append(timed(backend, table, places))
        for precision, times in seconds.items():
            rate = n_rows * FLAGS.n_steps / min(times[1:])
            figures[f"{precision}, rows {n_rows}"] = rate
    common.report(f"{FLAGS.model}, tokens/s", figures, FLAGS.json)


def embedding_figures(embedders, text) -> dict[str, float]:
    """Return the rate of each embedder, and the ratio of int8 to float32."""
    n_tokens, rates = sum(map(len, text)), {precision: [] for precision in embedders}
    for _ in range(FLAGS.n_times + 1):
        for precision, embedder in embedders.items():
            embedder.clear_cache()
            start = time.perf_counter()
            for _ in embedder.embed_as_completed(text):
                pass
            rates[precision].append(n_tokens / (time.perf_counter() - start))
    rates = {precision: found[1:] for precision, found in rates.items()}
    figures = {f"{p}, text": statistics.median(found) for p, found in rates.items()}
    pairs = zip(rates["int8"], rates["float32"], strict=True)
    return figures | {"int8 / float32, text": statistics.median(x / y for x, y in pairs)}


def timed(backend, table, places) -> float:
    """Return the seconds of a window from zero state."""
    shape = next(iter(places.values())).shape
    places = {d: p.astype(np.int32) for d, p in places.items()}
    table, state = backend.start(table, shape[0])
    start = time.perf_counter()
    layers, _ = backend.run_window(table, places, np.zeros(shape, bool), state)
    for values in layers.values():
        np.asarray(values)
    return time.perf_counter() - start


if __name__ == "__main__":
    app.run(main)
