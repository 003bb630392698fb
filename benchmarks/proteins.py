#!/usr/bin/env python
"""Residues per second of pooled proteins: how sequences are packed, and the table of layer 0.

Examples:
  python benchmarks/proteins.py --model original --n_steps 16
  python benchmarks/proteins.py --rows_only --spread 0.5

The lengths are log-normal with --mean and --spread (of the logarithm), cut off at --longest; the
residues are drawn evenly. `before` reads 16,384 tokens ahead, as sentences of ordinary length need,
and multiplies each residue with the weights of the first layers. `packed` reads up to 262,144
ahead. `after` multiplies each distinct residue once, too, and looks the products up. The three
alternate. Rows are the mean number of sequences that run side by side.

With --n_steps only so many steps of each group that is packed together are run, and their time is
multiplied: the steps of a group have the same rows, and so take the same time. Seconds of the
processor depend less on other programs than those of the clock.
"""

import itertools
import statistics
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import random_model
from absl import app, flags

from bilm.embedding import packed_runner
from bilm.embedding.collecting import Mean
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.packing import pack

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["tiny", "small", "original"], "One of the packaged sizes.")
flags.DEFINE_integer("n_residues", 1 << 18, "Residues of all proteins.", 1)
flags.DEFINE_float("mean", 396, "Mean length.")
flags.DEFINE_float("spread", 0.8, "Standard deviation of the logarithm of the length.")
flags.DEFINE_integer("longest", 35_000, "Longest length.", 1)
flags.DEFINE_integer("seed", 0, "Of lengths and residues.")
flags.DEFINE_integer("n_times", 3, "Times that each is measured.", 1)
flags.DEFINE_integer("n_steps", None, "Steps that are run of each group [all].", 1)
flags.DEFINE_boolean("rows_only", False, "Report rows, and run no model.")
flags.DEFINE_string("json", None, "JSON file for the figures.")

# Tokens that are read ahead, and from how many places of a residue on its products are looked up.
WAYS = {"before": (0, np.inf), "packed": (1 << 18, np.inf), "after": (1 << 18, 8)}


def proteins():
    rng, found, left = np.random.default_rng(FLAGS.seed), [], FLAGS.n_residues
    while left > 0:
        length = rng.lognormal(np.log(FLAGS.mean) - FLAGS.spread**2 / 2, FLAGS.spread)
        length = int(np.clip(length, 1, min(FLAGS.longest, left)))
        found.append(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length).tolist())
        left -= length
    return found


def grouped(sequences, limit):
    """Return the groups of sequences that an embedder packs together."""
    embedder = ElmoEmbedder.__new__(ElmoEmbedder)  # without a model, which groups do not need
    embedder.batch_tokens = 2048
    return list(embedder._groups(sequences, limit))


def mean_rows(groups):
    """Return how many tokens a step has, averaged over the steps of all groups."""
    lengths = [np.array([len(words) + 1 for words in group]) for group in groups]
    return sum(map(np.sum, lengths)) / sum(pack(group).n_steps for group in lengths)


def seconds(embedder, groups):
    """Return the seconds of the clock and of the processor that the groups take."""
    total = np.zeros(2)
    for group in groups:
        places, table = embedder._look_up(group)
        begin, end = embedder._marks
        sentences = [np.array([places[w] for w in (begin, *words, end)]) for words in group]
        start = np.array([time.perf_counter(), time.process_time()])
        if FLAGS.n_steps is None:
            run = embedder._runner(table, sentences, lambda a: a.sum(axis=0), pooled(embedder))
            share = len(list(run)) / len(group)
        else:
            share = some_steps(embedder._runner, table, sentences)
        total += (np.array([time.perf_counter(), time.process_time()]) - start) / share
    return total


def pooled(embedder):
    return lambda n_words: Mean((0, embedder.dim), n_words)


def some_steps(runner, table, sentences):
    """Run the first steps of a group; return which part of all its steps they are."""
    packing = pack(np.array([len(rows) - 1 for rows in sentences]))
    n_steps = min(FLAGS.n_steps, packing.n_steps)
    places, fresh = runner._lay_out(sentences, packing)
    few = {d: p[:, :n_steps] for d, p in places.items()}, fresh[:, :n_steps]
    for _ in runner._windows(table, *few):
        pass
    return n_steps / packing.n_steps


def measure(sequences):
    """Return the residues per second of each way, by the clock and by the processor's time."""
    with tempfile.TemporaryDirectory() as name:
        embedder = ElmoEmbedder(*random_model.write(FLAGS.model, Path(name)))
    found = {name: [] for name in WAYS}
    for turn, (name, (limit, repeats)) in itertools.product(range(-1, FLAGS.n_times), WAYS.items()):
        packed_runner.REPEATS = repeats
        groups = grouped(sequences, limit)
        if turn < 0:  # traces the graph
            groups = [group[:1] for group in groups[:1]]
        taken = seconds(embedder, groups)
        if turn >= 0:
            found[name].append(FLAGS.n_residues / taken)
            print(f"turn {turn + 1}, {name}: {found[name][-1].round(1)} residues/s", flush=True)
    return found


def main(argv):
    del argv
    sequences = proteins()
    figures = {f"rows_{n}": mean_rows(grouped(sequences, limit)) for n, (limit, _) in WAYS.items()}
    del figures["rows_after"]
    if not FLAGS.rows_only:
        found = measure(sequences)
        for k, clock in enumerate(("clock", "processor")):
            medians = {n: statistics.median(v[k] for v in values) for n, values in found.items()}
            figures |= {f"{clock}_{name}": rate for name, rate in medians.items()}
            for name in ("packed", "after"):  # within a turn, in which other programs are the same
                pairs = zip(found[name], found["before"], strict=True)
                ratio = statistics.median(new[k] / old[k] for new, old in pairs)
                figures[f"{clock}_{name}_over_before"] = ratio
        figures["peak_memory_mb"] = common.peak_memory_mb()
    common.report(f"proteins: {len(sequences)} of {FLAGS.n_residues:,}", figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
