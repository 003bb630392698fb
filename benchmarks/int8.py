#!/usr/bin/env python
"""Tokens per second of an embedder in float32, bfloat16 and int8, measured in turns.

Example:
  python benchmarks/int8.py --model original --n_times 3 --json original.json

The model has random weights. The text of embed.py is embedded with an empty cache of token vectors;
the figures are the medians of the rounds. Requires the extra onnx.
"""

import statistics
import time

import common
from absl import flags

from bilm.embedding.embedder import ElmoEmbedder
from bilm.precisions import INFERENCE_PRECISIONS

FLAGS = flags.FLAGS
flags.DEFINE_integer("n_times", 5, "Rounds.", 1)
flags.DEFINE_integer("n_sentences", 640, "Sentences of the text.", 1)
flags.DEFINE_integer("batch_tokens", 3328, "Tokens of the text that are computed at a time.", 1)


def compare(folder):
    files = common.random_model(FLAGS.model, folder)
    settings = {"batch_tokens": FLAGS.batch_tokens}
    embedders = {p: ElmoEmbedder(*files, precision=p, **settings) for p in INFERENCE_PRECISIONS}
    text = common.sentences(common.corpus(folder).heldout)[: FLAGS.n_sentences]
    n_tokens = sum(map(len, text))
    rates: dict[str, list[float]] = {precision: [] for precision in embedders}
    for turn in range(FLAGS.n_times + 1):
        for precision, embedder in embedders.items():
            embedder.clear_cache()
            start = time.perf_counter()
            for _ in embedder.embed_as_completed(text):
                pass
            if turn:  # the first one warms up
                rates[precision].append(n_tokens / (time.perf_counter() - start))
    figures = {precision: statistics.median(of_turns) for precision, of_turns in rates.items()}
    pairs = zip(rates["int8"], rates["float32"], strict=True)
    figures["int8 / float32"] = statistics.median(x / y for x, y in pairs)
    return f"{FLAGS.model}, tokens/s", figures


if __name__ == "__main__":
    common.run(compare)
