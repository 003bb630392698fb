#!/usr/bin/env python
"""Tokens per second when embedding a corpus into HDF5 with an empty cache of token vectors.

Example:
  python benchmarks/embed.py --model original --precision bfloat16 --json original.json

The text is the start of dev.txt of classics_en, or Python's documentation if that is missing. The
model has random weights. Other sentences are embedded first, then the cache is cleared. The time
covers characters, LSTMs and writing all layers. Compare tokens/s per GFLOP/s: see train.py.
"""

import statistics
import time

import common
import h5py
from absl import flags

from bilm.embedding.embedder import ElmoEmbedder
from bilm.precisions import INFERENCE_PRECISIONS

FLAGS = flags.FLAGS
flags.DEFINE_enum("precision", "float32", INFERENCE_PRECISIONS, "Precision of matrix products.")
flags.DEFINE_integer("batch_size", 128, "Sentences of average length per batch.", 1)
flags.DEFINE_integer("n_sentences", 640, "Lines of the text.", 2)
flags.DEFINE_integer("n_times", 3, "Repetitions; the median is reported.", 1)

SENTENCE_TOKENS = 26  # tokens of an English sentence, with the marks


def embed(folder):
    sentences = common.sentences(common.corpus(folder).heldout)
    n = min(FLAGS.n_sentences, len(sentences) // 2)
    timed, others = sentences[:n], sentences[n : 2 * n]
    start = time.perf_counter()
    files = common.random_model(FLAGS.model, folder)
    making_s = time.perf_counter() - start
    start = time.perf_counter()
    embedder = ElmoEmbedder(
        *files, batch_tokens=FLAGS.batch_size * SENTENCE_TOKENS, precision=FLAGS.precision
    )
    load_s = time.perf_counter() - start
    embedder.embed_sentence(timed[0])
    first_step_s = common.seconds_since_start() - making_s
    before = common.gemm_rates()
    outfile, seconds = folder / "out.hdf5", []
    for text in [others] + [timed] * FLAGS.n_times:
        embedder.clear_cache()
        start = time.perf_counter()
        with h5py.File(outfile, "w") as file:
            for number, _, vectors in embedder.embed_as_completed(text):
                file[str(number)] = vectors
        seconds.append(time.perf_counter() - start)
    after = common.gemm_rates()

    n_tokens = sum(map(len, timed))
    rate = n_tokens / statistics.median(seconds[1:])
    distinct = len({word for words in timed for word in words}) / n_tokens
    flops = common.useful_flops(embedder.options, distinct)
    figures = common.figures(rate, flops, FLAGS.precision, before, after, first_step_s)
    figures["load_s"] = load_s
    title = f"embed {FLAGS.model}, {FLAGS.precision}, {n} sentences, {n_tokens:,} tokens"
    return title, figures


if __name__ == "__main__":
    common.run(embed)
