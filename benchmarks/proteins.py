#!/usr/bin/env python
"""Residues per second of pooled protein vectors.

Examples:
  python benchmarks/proteins.py --model small
  python benchmarks/proteins.py --model original --n_residues 65536 --n_times 1

The lengths are log-normal with --mean and --spread (standard deviation of the logarithm), cut off
at --longest; the residues are drawn evenly. CPU time depends less on other programs than wall time.
"""

import statistics
import tempfile
import time
from pathlib import Path

import common
import numpy as np
from absl import app, flags

from bilm.embedding.embedder import ElmoEmbedder

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["tiny", "small", "medium", "original"], "Size of the model.")
flags.DEFINE_integer("n_residues", 1 << 18, "Residues of all proteins.", 1)
flags.DEFINE_float("mean", 396, "Mean length.")
flags.DEFINE_float("spread", 0.8, "Standard deviation of the logarithm of the length.")
flags.DEFINE_integer("longest", 35_000, "Maximum length.", 1)
flags.DEFINE_integer("seed", 0, "Seed of lengths and residues.")
flags.DEFINE_integer("n_times", 3, "Repetitions; the median is reported.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")


def proteins() -> list[list[str]]:
    rng, found, left = np.random.default_rng(FLAGS.seed), [], FLAGS.n_residues
    while left > 0:
        length = rng.lognormal(np.log(FLAGS.mean) - FLAGS.spread**2 / 2, FLAGS.spread)
        length = int(np.clip(length, 1, min(FLAGS.longest, left)))
        found.append(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length).tolist())
        left -= length
    return found


def main(argv):
    del argv
    sequences = proteins()
    with tempfile.TemporaryDirectory() as name:
        embedder = ElmoEmbedder(*common.random_model(FLAGS.model, Path(name)))
    embedder.sentence_vectors(sequences[:1])  # traces the graph
    seconds = []
    for _ in range(FLAGS.n_times):
        start = np.array([time.perf_counter(), time.process_time()])
        embedder.sentence_vectors(sequences)
        seconds.append(np.array([time.perf_counter(), time.process_time()]) - start)
    wall, cpu = (statistics.median(column) for column in zip(*seconds, strict=True))
    figures = {
        "residues_per_s": FLAGS.n_residues / wall,
        "residues_per_cpu_s": FLAGS.n_residues / cpu,
        "peak_memory_mb": common.peak_memory_mb(),
    }
    common.report(f"{FLAGS.model}, {len(sequences)} proteins", figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
