#!/usr/bin/env python
"""Tokens per second when embedding a corpus into HDF5 with an empty cache of token vectors.

Examples:
  python benchmarks/embed.py --model small
  python benchmarks/embed.py --model original --precision bfloat16 --json original.json

The text is the start of dev.txt of classics_en, or the demo's text if classics_en is missing. The
weights are drawn at random and stored first. After embedding other sentences, the cache is
emptied. The time covers characters, LSTMs and writing all layers. Compare tokens/s per GFLOP/s of
the 2048^3 float32 product, which the same run measures.
"""

import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

import common
import random_model
from absl import app, flags, logging

from bilm.data.records import Record, read_corpus
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.part_files import Wanted, write_datasets
from bilm.layers.functional import PRECISIONS

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "One of the published sizes.")
flags.DEFINE_enum("precision", "float32", PRECISIONS, "Precision of the operands of products.")
flags.DEFINE_integer("batch_size", 128, "Sentences of ordinary length in a batch.", 1)
flags.DEFINE_integer("n_sentences", 640, "Lines of the text.", 2)
flags.DEFINE_integer("n_times", 3, "Times that the text is embedded; the median is reported.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

SENTENCE_TOKENS = 26  # of an English sentence, with the marks


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = list(read_corpus(common.corpus(folder).heldout))
        n = min(FLAGS.n_sentences, len(sentences) // 2)
        timed, others = sentences[:n], sentences[n : 2 * n]
        start = time.perf_counter()
        files = random_model.write(FLAGS.model, folder)
        making_s = time.perf_counter() - start
        start = time.perf_counter()
        embedder = ElmoEmbedder(
            *files, batch_tokens=FLAGS.batch_size * SENTENCE_TOKENS, precision=FLAGS.precision
        )
        load_s = time.perf_counter() - start
        embedder.embed_sentence(timed[0])
        first_step_s = common.seconds_since_start() - making_s
        rates = common.gemm_rates()
        outfile, seconds = folder / "out.hdf5", []
        for text in [others] + [timed] * FLAGS.n_times:
            embedder.clear_cache()
            start = time.perf_counter()
            records = list(map(Record, text))
            deque(write_datasets(outfile, 0, records, embedder, Wanted()), maxlen=0)
            seconds.append(time.perf_counter() - start)
        after = common.gemm_rates()

    n_tokens = sum(map(len, timed))
    rate = n_tokens / statistics.median(seconds[1:])
    distinct = len({word for words in timed for word in words}) / n_tokens
    flops = common.useful_flops(embedder.options, distinct)
    rates = {dtype: (rates[dtype] + after[dtype]) / 2 for dtype in rates}
    figures = common.figures(rate, flops, FLAGS.precision, rates, first_step_s)
    figures["load_s"] = load_s
    title = f"embed {FLAGS.model}, {FLAGS.precision}, {n} sentences, {n_tokens:,} tokens"
    common.report(title, figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
