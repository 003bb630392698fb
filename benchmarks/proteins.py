#!/usr/bin/env python
"""Residues per second of pooled proteins, packed over small and large windows, in turns.

Examples:
  python benchmarks/proteins.py --model original
  python benchmarks/proteins.py --n_residues 262144 --rows_only

The lengths are log-normal with --mean and --spread (of the logarithm), cut off at --longest; the
residues are drawn evenly. `before` reads 16,384 tokens ahead, as sentences of ordinary length need;
`after` up to 262,144. Rows are the mean number of sequences that run side by side.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import random_model
from absl import app, flags

from bilm.embedding import embedder as embedder_module
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.packing import MAX_ROWS, pack

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["tiny", "small", "original"], "One of the packaged sizes.")
flags.DEFINE_integer("n_residues", 1 << 18, "Residues of all proteins.", 1)
flags.DEFINE_float("mean", 396, "Mean length.")
flags.DEFINE_float("spread", 0.8, "Standard deviation of the logarithm of the length.")
flags.DEFINE_integer("longest", 35_000, "Longest length.", 1)
flags.DEFINE_integer("seed", 0, "Of lengths and residues.")
flags.DEFINE_integer("n_times", 3, "Times that each is measured.", 1)
flags.DEFINE_boolean("rows_only", False, "Report rows, and run no model.")
flags.DEFINE_string("json", None, "JSON file for the figures.")

WINDOWS = {"before": 0, "after": 1 << 18}


def proteins():
    rng, found, left = np.random.default_rng(FLAGS.seed), [], FLAGS.n_residues
    while left > 0:
        length = rng.lognormal(np.log(FLAGS.mean) - FLAGS.spread**2 / 2, FLAGS.spread)
        length = int(np.clip(length, 1, min(FLAGS.longest, left)))
        found.append(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length).tolist())
        left -= length
    return found


def mean_rows(sequences, limit):
    """Return how many tokens a step has, averaged over the steps of all windows."""
    n_steps, group, n_tokens, longest = 0, [], 0, 0
    for k, words in enumerate(sequences, start=1):
        group.append(len(words) + 1)
        n_tokens, longest = n_tokens + len(words) + 2, max(longest, len(words) + 2)
        if n_tokens >= max(8 * 2048, min(MAX_ROWS * longest, limit)) or k == len(sequences):
            n_steps += pack(np.array(group)).n_steps
            group, n_tokens, longest = [], 0, 0
    return sum(len(words) + 1 for words in sequences) / n_steps


def main(argv):
    del argv
    sequences = proteins()
    figures = {f"rows_{name}": mean_rows(sequences, limit) for name, limit in WINDOWS.items()}
    if not FLAGS.rows_only:
        with tempfile.TemporaryDirectory() as name:
            embedder = ElmoEmbedder(*random_model.write(FLAGS.model, Path(name)))
        embedder.sentence_vectors(sequences[:2])
        seconds = {name: [] for name in WINDOWS}
        for _ in range(FLAGS.n_times):
            for name, limit in WINDOWS.items():
                embedder_module.WINDOW_TOKENS = limit
                start = time.perf_counter()
                embedder.sentence_vectors(sequences, "sum")
                seconds[name].append(time.perf_counter() - start)
        for name, values in seconds.items():
            figures[f"residues_per_s_{name}"] = FLAGS.n_residues / statistics.median(values)
        ratio = figures["residues_per_s_after"] / figures["residues_per_s_before"]
        figures |= {"ratio": ratio, "peak_memory_mb": common.peak_memory_mb()}
    common.report(f"proteins: {len(sequences)} of {FLAGS.n_residues:,}", figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
