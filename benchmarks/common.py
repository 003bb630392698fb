"""Shared by the benchmarks: the machine's GEMM rate, memory, text, and the output of figures."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

from bilm.data.vocabulary import MARKS
from bilm.process import LOG_LEVEL, keep_freed_memory, quiet, share_cores

quiet()  # as the commands do
keep_freed_memory()
share_cores()
START = time.perf_counter()
CLASSICS = Path(__file__).resolve().parents[2] / "shared" / "data" / "classics_en"
PLACES = 10  # of a character filter in a distinct word of English, 9 bytes with its marks

MIDDLE = {  # options of the size that docs/experiments.md compares recipes on
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 16},
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 128]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {
        "cell_clip": 3,
        "dim": 512,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 128,
        "use_skip_connections": True,
    },
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "learning_rate": 0.2,
    "n_epochs": 10,
    "batch_size": 64,
    "unroll_steps": 20,
    "n_negative_samples_batch": 1024,
}


def seconds_since_start() -> float:
    """Return the seconds since this process started, including interpreter and imports."""
    try:
        started = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:  # not Linux: since this module was imported
        return time.perf_counter() - START
    return uptime - started / os.sysconf("SC_CLK_TCK")


def gemm_rates() -> dict[str, float]:
    """Return the rates of both precisions with TensorFlow's own threads, in GFLOP/s.

    They are measured in a separate process, which uses all cores, while this one waits.
    """
    command = [sys.executable, Path(__file__).with_name("gemm.py")]
    env = {name: value for name, value in os.environ.items() if name != LOG_LEVEL}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)


def figures(rate, flops_per_token, precision, rates, first_step_s) -> dict[str, float]:
    """Return the figures that a benchmark prints and stores.

    Args:
        rate: tokens per second.
        flops_per_token: useful work per token in FLOP.
        precision: that of the products.
        rates: from `gemm_rates`, in the same run.
        first_step_s: seconds from the start of the process to the first result.
    """
    return {
        "tokens_per_s": rate,
        "gemm_gflops": rates["float32"],
        "gemm_gflops_bfloat16": rates["bfloat16"],
        "tokens_per_s_per_gflops": rate / rates["float32"],
        "flops_share": flops_per_token * rate / rates[precision] / 1e9,
        "peak_memory_mb": peak_memory_mb(),
        "first_step_s": first_step_s,
    }


def report(title: str, values: dict[str, float], path: str | None) -> None:
    """Print figures, and write them to the file of --json, if any."""
    print(title)
    for name, value in values.items():
        print(f"{name:>24}: {value:,.3f}")
    write_json(path, values)


def peak_memory_mb() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def useful_flops(options, distinct_per_token: float) -> float:
    """Return the forward work per token in both directions, in FLOP.

    Each distinct token is encoded once. Positions of a character filter count if they hold any of
    the word; one position of padding counts too.
    """
    cnn, lstm = options.char_cnn, options.lstm
    encoder = 0
    if cnn is not None:
        n_filters = sum(n for _, n in cnn.filters)
        for width, n in cnn.filters:
            encoder += 2 * width * cnn.embedding.dim * n * PLACES
        encoder += cnn.n_highway * 2 * 2 * n_filters**2
        encoder += 2 * n_filters * lstm.projection_dim
    layer = 2 * 2 * lstm.projection_dim * 4 * lstm.dim + 2 * lstm.dim * lstm.projection_dim
    return distinct_per_token * encoder + 2 * lstm.n_layers * layer


class Text(NamedTuple):
    """Files of a corpus: a pattern for training text, its vocabulary, held-out text."""

    train: str
    vocab_file: str
    heldout: str


def corpus(folder: Path, n_tokens: int | None = None) -> Text:
    """Return classics_en, or Python's own documentation if classics_en is missing.

    Args:
        folder: folder for the files that are written.
        n_tokens: size to which the vocabulary is cut or filled up; None keeps its size.
    """
    if CLASSICS.is_dir():
        train, heldout = str(CLASSICS / "train" / "*"), str(CLASSICS / "dev.txt")
        words = (CLASSICS / "vocab.txt").read_text(encoding="utf-8").split()[len(MARKS) :]
    else:
        print("classics_en not found: using the text of Python's own documentation")
        lines = [line for text in topics.values() for line in text.splitlines() if line.strip()]
        train, heldout = str(folder / "train.txt"), str(folder / "heldout.txt")
        held_out = lines[::10]
        del lines[::10]
        for path, part in ((train, lines), (heldout, held_out)):
            Path(path).write_text("\n".join(part), encoding="utf-8")
        words = [w for w, _ in Counter(" ".join(lines).split()).most_common()]
    if n_tokens is not None:
        words = words[: n_tokens - len(MARKS)]
        words += [f"filler{i}" for i in range(n_tokens - len(MARKS) - len(words))]
    vocab_file = folder / "vocab.txt"
    vocab_file.write_text("\n".join([*MARKS, *words]), encoding="utf-8")
    return Text(train, str(vocab_file), heldout)


def write_json(path: str | None, figures: dict) -> None:
    """Write figures to the file of --json, if any."""
    if path:
        Path(path).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
