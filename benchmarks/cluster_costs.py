#!/usr/bin/env python
"""What training on several hosts exchanges: bytes per step by part, and steps per second predicted.

Examples:
  cluster_costs.py
  cluster_costs.py --options original --vocabulary 793471 --step_seconds 0.30
  cluster_costs.py --check

The formula is that of docs/clusters.md. --check trains two workers on this machine over the
loopback device, compares what its counters say with the formula, and times the same run in one
process with two replicas on the same cores. Linux only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
from absl import app, flags

from bilm.data.bidirectional import BidirectionalLMDataset
from bilm.data.vocabulary import UnicodeCharsVocabulary
from bilm.options import RunOptions, load_run_options
from bilm.rules import N_CHARACTERS
from bilm.sizes import count_parameters, dense_sizes
from bilm.training.sampling import LogUniformSampler

FLAGS = flags.FLAGS
FLOAT, INDEX = 4, 8  # bytes
DISTINCT = 0.43  # of the tokens of a window of English
SIZES = {"tiny": 10_000, "small": 50_000, "medium": 200_000, "original": 793_471}
HOSTS = (1, 2, 4, 8, 16, 32, 64)
GPUS = 8  # per host
NETWORKS = (10, 100, 400)  # Gb/s per host
FIRST = 5  # steps that are not measured


class Exchange(NamedTuple):
    """Bytes per step that a replica contributes, by part.

    Fields:
        recurrent: gradients of the LSTM stacks, reduced.
        encoder: gradients of the rest that is dense, reduced.
        common: gradients of the rows of shared negatives, reduced.
        rows: gradients of the other rows of the tables with their indices, gathered.
        small: losses and lengths, gathered.
    """

    recurrent: int
    encoder: int
    common: int
    rows: int
    small: int

    def received(self, n_replicas: int) -> float:
        """Return the bytes that a replica receives per step in a ring of replicas.

        A reduced byte passes each replica twice, but for its own share; a gathered one reaches all
        the others.
        """
        reduced = 2 * (n_replicas - 1) / n_replicas * sum(self[:3])
        return reduced + (n_replicas - 1) * (self.rows + self.small)


def exchange(options: RunOptions, n_tokens: int) -> Exchange:
    """Return what a replica contributes to a step.

    Args:
        options: of the run; `batch_size` is a replica's.
        n_tokens: vocabulary size.
    """
    lstm, n_directions = options.lstm, len(options.model.directions)
    width = lstm.projection_dim
    parameters, _ = count_parameters(options.model, n_tokens)
    layer = 2 * width * 4 * lstm.dim + 4 * lstm.dim + (width != lstm.dim) * lstm.dim * width
    recurrent = n_directions * lstm.n_layers * layer
    window = options.batch_size * options.unroll_steps
    sampled = options.sample_softmax and options.n_negative_samples_batch < n_tokens
    if not sampled:
        return Exchange(FLOAT * recurrent, FLOAT * (parameters - recurrent), 0, 0, 0)
    # Each row once, for the kernel and for the bias. Both directions predict the same words.
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
        rows += N_CHARACTERS * (FLOAT * dim + INDEX)  # at most
    return Exchange(FLOAT * recurrent, FLOAT * encoder, common, rows, FLOAT * n_directions)


def n_distinct(n_tokens: int, n_samples: int, n_directions: int) -> int:
    """Return how many distinct words the negatives of a step are."""
    sampler, no_targets = LogUniformSampler(n_tokens, n_samples, seed=0), np.zeros(0, np.int64)
    draws = [sampler.draw((0, 0, k), no_targets).ids for k in range(n_directions)]
    return len(np.unique(np.concatenate(draws)))


def rate(options: RunOptions, n_tokens: int, step_seconds: float, n_hosts: int, gigabits: float):
    """Return the steps per second, where nothing is exchanged while a step computes.

    All of a host's replicas share its network, and a ring enters and leaves each host once.
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
    """Return the tokens per second of one core that reads the text of all and encodes one row."""
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
    print("steps per second, each replica with negatives of its own and with shared ones")
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
    print(f"every host reads the whole text: {n_read:,.0f} tokens/s on a core of this machine")
    print(f"that binds from {bound:,.0f} replicas on")


def worker(
    index: int, n_workers: int, run: Path, text: common.Text, n_rows: int
) -> subprocess.Popen:
    """Start one worker of a run, or a single process with as many replicas."""
    arguments = {
        "input": text.train,
        "vocab": text.vocab_file,
        "options": FLAGS.options,
        "batch_size": n_rows,
        "output": run,
        "n_steps": FIRST + FLAGS.n_steps,
        "log_steps": 1,
        "n_gpus": 0,
    }
    if index < 0:
        arguments["cpu_replicas"] = n_workers
    else:
        ports = (f"127.0.0.1:{FLAGS.port + k}" for k in range(n_workers))
        arguments |= {"workers": ",".join(ports), "worker_index": index}
    flags = [f"--{name}={value}" for name, value in arguments.items()]
    command = [sys.executable, "-m", "bilm", "train", *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def loopback_bytes() -> int:
    """Return what the loopback device has received."""
    return int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())


def timed(processes: list[subprocess.Popen]) -> tuple[float, float]:
    """Return the bytes on the loopback device and the seconds per step, after the first steps."""
    start = None
    for line in processes[0].stderr:
        if start is None and f"step {FIRST} of" in line:
            start = time.monotonic(), loopback_bytes()
        if f"step {FIRST + FLAGS.n_steps} of" in line:
            end = time.monotonic(), loopback_bytes()
    if any(process.wait() for process in processes):
        raise RuntimeError(f"{processes[0].args} has failed")
    seconds, n_bytes = (b - a for a, b in zip(start, end, strict=True))
    return n_bytes / FLAGS.n_steps, seconds / FLAGS.n_steps


def measured(folder: Path, text: common.Text, n_rows: int) -> tuple[float, float, float]:
    """Return bytes and seconds per step of two workers, and the seconds of one process."""
    run = folder / str(n_rows)
    n_bytes, seconds = timed([worker(k, 2, run / "two", text, n_rows) for k in range(2)])
    _, alone = timed([worker(-1, 2, run / "one", text, n_rows)])
    return n_bytes, seconds, alone


def check() -> None:
    """Train two workers, then one process with two replicas; compare bytes and time."""
    with tempfile.TemporaryDirectory(prefix="bilm_cluster_") as name:
        text = common.corpus(Path(name), FLAGS.vocabulary)
        # With a single row there is hardly more to do than to exchange gradients and to update.
        for n_rows in (FLAGS.rows, 1):
            n_bytes, seconds, alone = measured(Path(name), text, n_rows)
            options = load_run_options(FLAGS.options).replace(batch_size=n_rows)
            expected = 2 * exchange(options, FLAGS.vocabulary).received(2)
            print(
                f"{n_rows:>4} rows: two workers {seconds:.3f} s per step, one process {alone:.3f} "
                f"s, {seconds / alone:.2f} x; loopback {n_bytes / 1e6:.3f} MB per step, "
                f"{expected / 1e6:.3f} MB by the formula",
                flush=True,
            )


def main(argv) -> None:
    del argv
    if FLAGS.check:
        check()
        return
    print_sizes()
    print_rates(FLAGS.options, FLAGS.vocabulary, FLAGS.step_seconds)


if __name__ == "__main__":
    flags.DEFINE_string("options", "original", "Options of the model, by name.")
    flags.DEFINE_integer("vocabulary", 793_471, "Words.", 1)
    flags.DEFINE_float("step_seconds", 0.5, "Seconds that a step computes on its GPU.", 0)
    flags.DEFINE_bool("check", False, "Measure the bytes of two workers on this machine.")
    flags.DEFINE_integer("rows", 16, "Per replica, in --check.", 1)
    flags.DEFINE_integer("n_steps", 50, "Steps that --check measures.", 1)
    flags.DEFINE_integer("port", 28_710, "Of the first worker of --check.", 1)
    app.run(main)
