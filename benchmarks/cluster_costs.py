#!/usr/bin/env python
"""Data exchanged by training on several hosts: bytes per step, and predicted steps per second.

Examples:
  python benchmarks/cluster_costs.py
  python benchmarks/cluster_costs.py --options original --vocabulary 793471 --step_seconds 0.30

docs/clusters.md explains the formula.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
from absl import app, flags

from bilm.data import BidirectionalLMDataset, UnicodeCharsVocabulary
from bilm.options.model_options import dense_sizes
from bilm.options.run_options import RunOptions, load_run_options
from bilm.training.sampling import LogUniformSampler

FLAGS = flags.FLAGS
FLOAT, INDEX = 4, 8  # bytes
N_CHARACTERS = 261
DISTINCT = 0.43  # share of distinct tokens in a window of English
SIZES = {"tiny": 10_000, "small": 50_000, "medium": 200_000, "original": 793_471}
HOSTS = (1, 2, 4, 8, 16, 32, 64)
GPUS = 8  # per host
NETWORKS = (10, 100, 400)  # Gb/s per host


class Exchange(NamedTuple):
    """Bytes that a replica contributes per step.

    Fields:
        recurrent: gradients of the LSTM stacks, reduced.
        encoder: other dense gradients, reduced.
        common: gradients of the softmax rows of shared negatives, reduced.
        rows: gradients of other table rows with their indices, gathered.
        small: losses and lengths, gathered.
    """

    recurrent: int
    encoder: int
    common: int
    rows: int
    small: int

    def received(self, n_replicas: int) -> float:
        """Return the bytes that a replica receives per step in a ring of replicas.

        Reducing sends each byte past every replica twice, except for one share of it; gathering
        sends each byte to all other replicas.
        """
        reduced = 2 * (n_replicas - 1) / n_replicas * sum(self[:3])
        return reduced + (n_replicas - 1) * (self.rows + self.small)


def exchange(options: RunOptions, n_tokens: int) -> Exchange:
    """Return the bytes that a replica contributes per step.

    Args:
        options: options of the run; `batch_size` is per replica.
        n_tokens: vocabulary size.
    """
    lstm, n_directions = options.lstm, len(options.model.directions)
    width = lstm.projection_dim
    n_tables = options.model.reads_words + (not options.share_embedding_softmax)
    parameters = sum(dense_sizes(options.model)) + n_tokens * (n_tables * width + 1)
    layer = 2 * width * 4 * lstm.dim + 4 * lstm.dim + (width != lstm.dim) * lstm.dim * width
    recurrent = n_directions * lstm.n_layers * layer
    window = options.batch_size * options.unroll_steps
    sampled = options.sample_softmax and options.n_negative_samples_batch < n_tokens
    if not sampled:
        return Exchange(FLOAT * recurrent, FLOAT * (parameters - recurrent), 0, 0, 0)
    # Each row is sent once for the kernel and once for the bias. Both directions share targets.
    n_rows, n_drawn = int(DISTINCT * window), options.n_negative_samples_batch
    common = n_drawn * FLOAT * (width + 1) if options.share_negatives else 0
    if not common:
        n_rows = min(n_rows + n_distinct(n_tokens, n_drawn, n_directions), n_tokens)
    rows = n_rows * (FLOAT * width + INDEX) + n_rows * (FLOAT + INDEX)
    encoder = sum(dense_sizes(options.model)) - recurrent
    if options.model.reads_words:
        rows += int(DISTINCT * window) * (FLOAT * width + INDEX)
    else:
        dim = options.char_cnn.embedding.dim
        encoder -= N_CHARACTERS * dim
        rows += N_CHARACTERS * (FLOAT * dim + INDEX)  # upper bound
    return Exchange(FLOAT * recurrent, FLOAT * encoder, common, rows, FLOAT * n_directions)


def n_distinct(n_tokens: int, n_samples: int, n_directions: int) -> int:
    """Return the number of distinct words among the negatives of a step."""
    sampler, no_targets = LogUniformSampler(n_tokens, n_samples, seed=0), np.zeros(0, np.int64)
    draws = [sampler.draw((0, 0, k), no_targets).ids for k in range(n_directions)]
    return len(np.unique(np.concatenate(draws)))


def rate(options: RunOptions, n_tokens: int, step_seconds: float, n_hosts: int, gigabits: float):
    """Return the steps per second if exchange and computation do not overlap.

    The replicas of a host share its network; the ring enters and leaves each host once.
    """
    n_replicas = GPUS * n_hosts
    if n_hosts == 1:
        return 1 / step_seconds
    seconds = 8 * exchange(options, n_tokens).received(n_replicas) / (gigabits * 1e9)
    return 1 / (step_seconds + seconds)


def print_sizes() -> None:
    parts = "".join(f"{name:>10}" for name in ("LSTMs", "encoder", "common", "rows"))
    print(f"{'options':>10} {'vocabulary':>11}{parts}   MB per replica and step")
    for name, n_tokens in SIZES.items():
        for share_negatives in (False, True):
            parts = exchange(requested(name, share_negatives), n_tokens)
            shown = " ".join(f"{n / 1e6:9.2f}" for n in parts[:4])
            print(f"{name:>10} {n_tokens:>11,} {shown}")


def requested(name: str, share_negatives: bool) -> RunOptions:
    return load_run_options(name).replace(share_negatives=share_negatives)


def reader_rate() -> float:
    """Return the tokens per second of one core that reads the whole text and encodes one row."""
    with tempfile.TemporaryDirectory(prefix="bilm_reader_") as name:
        text = common.corpus(Path(name))
        vocab = UnicodeCharsVocabulary(text.vocab_file, 50, validate_file=True)
        reader = BidirectionalLMDataset(text.train, vocab, shuffle_on_load=True)
        n_rows, n_steps, n_windows = 1280, 20, 12
        windows = reader.iter_placed_batches(n_rows, n_steps, own=range(1))
        next(windows)  # fills the shuffle buffer
        start = time.process_time()
        for _ in range(n_windows):
            next(windows)
        return n_windows * n_rows * n_steps / (time.process_time() - start)


def print_rates(name: str, n_tokens: int, step_seconds: float) -> None:
    print(f"\n{name}, {n_tokens:,} words, {step_seconds} s to compute a step, {GPUS} GPUs a host")
    print("steps per second with separate negatives per replica, and with shared negatives")
    print(f"{'hosts':>6}" + "".join(f"{g:>13} Gb/s" for g in NETWORKS))
    each = [requested(name, share_negatives) for share_negatives in (False, True)]
    for n_hosts in HOSTS:
        rates = [
            [rate(options, n_tokens, step_seconds, n_hosts, g) for options in each]
            for g in NETWORKS
        ]
        print(f"{n_hosts:>6}" + "".join(f"{own:11.2f} {shared:6.2f}" for own, shared in rates))
    options = each[0]
    tokens = options.batch_size * options.unroll_steps
    n_read = reader_rate()
    bound = n_read * step_seconds / tokens
    print(f"each host reads the whole text: {n_read:,.0f} tokens/s on a core of this machine")
    print(f"reading is the bottleneck from {bound:,.0f} replicas on")


def main(argv) -> None:
    del argv
    print_sizes()
    print_rates(FLAGS.options, FLAGS.vocabulary, FLAGS.step_seconds)


if __name__ == "__main__":
    flags.DEFINE_string("options", "original", "Name of the model options.")
    flags.DEFINE_integer("vocabulary", 793_471, "Vocabulary size.", 1)
    flags.DEFINE_float("step_seconds", 0.5, "Seconds of computation per step on a GPU.", 0)
    app.run(main)
