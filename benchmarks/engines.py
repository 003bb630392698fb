#!/usr/bin/env python
"""Speed of embedding with one command, with array tasks and with Spark; peak memory of a worker.

Examples:
  python benchmarks/engines.py --n_sentences 100000 --rounds 2
  python benchmarks/engines.py --what memory --sizes 100000,1000000
  python benchmarks/engines.py --what sizes --models novels-en,small,original --n_sentences 2000

`speed` embeds the sentences of classics_en, or of Python's documentation if that is missing, in
turns: with `bilm embed`, with the tasks of an array one after another and `bilm merge`, and with
Spark on local[2]. Seconds include everything from the start of the commands. All rows are compared.
`memory` embeds sentences of three random words with `embed_batches` in a separate process.
`sizes` prints sentences per second and core for stored models or packaged sizes with random
weights, and the bytes that a sentence occupies in the output.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path

import common
import numpy as np
from absl import app, flags

from bilm.embedding.embedder import ElmoEmbedder

FLAGS = flags.FLAGS
flags.DEFINE_enum("what", "speed", ["speed", "memory", "sizes"], "What to measure.")
flags.DEFINE_string("model", "novels-en", "Model of speed and memory.")
flags.DEFINE_list("models", ["novels-en", "small", "medium", "original"], "Models of sizes.")
flags.DEFINE_integer("n_sentences", 100_000, "Number of sentences of speed and sizes.", 1)
flags.DEFINE_list("ways", ["local", "array", "spark"], "Ways of speed, in this order.")
flags.DEFINE_integer("rounds", 1, "Number of turns of speed.", 1)
flags.DEFINE_integer("n_tasks", 4, "Number of array tasks.", 1)
flags.DEFINE_integer("partitions", 8, "Number of parts for Spark.", 1)
flags.DEFINE_string("layers", "average", "See bilm embed.")
flags.DEFINE_string("pool", "mean", "See bilm embed.")
flags.DEFINE_list("sizes", ["100000", "1000000"], "Numbers of sentences of memory.")
flags.DEFINE_string("folder", None, "Folder for text and outputs [temporary].")
flags.DEFINE_string("json", None, "JSON file for the figures.")

BILM = [sys.executable, "-m", "bilm"]
DIFFERENCE = 1e-5
MEMORY = """
import resource, sys
import pyarrow
from bilm.support.process import keep_freed_memory, quiet, share_cores
quiet()
keep_freed_memory()
share_cores()
from bilm.cluster import embed_batches
model, path, pool = sys.argv[1:]
def batches():
    with open(path, encoding="utf-8") as file:
        while lines := list(map(str.strip, file.readlines(1 << 18))):
            yield pyarrow.record_batch({"text": lines})
n = sum(batch.num_rows for batch in embed_batches(batches(), model, "text", pool=pool))
print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
# A process in between: a direct child would count the memory of this process in its peak.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def sentences(folder: Path) -> Iterator[str]:
    """Yield real sentences, from the start again if there are too few."""
    text = common.corpus(folder)
    files = sorted(Path(text.train).parent.glob(Path(text.train).name))
    yield from map(" ".join, cycle(chain.from_iterable(map(common.sentences, files))))


def run(*words: object) -> None:
    """Run a command; its log goes to standard error."""
    subprocess.run([*BILM, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def embed(way: str, text: Path, output: Path) -> float:
    """Embed a text and return the seconds."""
    how = ["--model", FLAGS.model, "--input", text, "--layers", FLAGS.layers, "--pool", FLAGS.pool]
    start = time.perf_counter()
    if way == "local":
        run("embed", *how, "--output", output, "--quiet")
    elif way == "array":
        for task in range(FLAGS.n_tasks):
            run("embed", *how, "--output", output, "--shard", f"{task}/{FLAGS.n_tasks}", "--quiet")
        run("merge", "--output", output, "--quiet")
    else:
        spark = ["--engine", "spark", "--master", "local[2]", "--partitions", FLAGS.partitions]
        run("embed", *how, *spark, "--output", f"{output}/", "--quiet")
    return time.perf_counter() - start


def compare(one: Path, other: Path) -> float:
    """Return the largest difference of two Parquet outputs. Raises: ValueError for other rows."""
    import pyarrow.parquet as parquet

    tables = [parquet.read_table(path) for path in (one, other)]
    words, *vectors = tables[0].column_names
    if tables[0][words].to_pylist() != tables[1][words].to_pylist():
        raise ValueError(f"{one} and {other} have other rows")
    differences = [
        np.abs(np.subtract(*(flat(table[name]) for table in tables))).max() for name in vectors
    ]
    return float(max(differences))


def flat(column) -> np.ndarray:
    """Return the numbers of a column of lists."""
    array = column.combine_chunks()
    while hasattr(array, "flatten") and hasattr(array.type, "value_type"):
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False)


def speed(folder: Path) -> dict:
    """Embed a text in each way, in turns, and compare the outputs."""
    text = folder / "text.txt"
    lines = islice(sentences(folder), FLAGS.n_sentences)
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    figures: dict = {way: [] for way in FLAGS.ways}
    for turn in range(FLAGS.rounds):
        for way in FLAGS.ways:
            output = folder / f"{way}{turn}.parquet"
            seconds = embed(way, text, output)
            figures[way].append(round(FLAGS.n_sentences / seconds, 1))
            print(f"{way}: {figures[way][-1]:,} sentences per second", flush=True)
            difference = compare(folder / f"{FLAGS.ways[0]}0.parquet", output)
            if difference > DIFFERENCE:
                raise ValueError(f"{way}: a difference of {difference}")
    for way in FLAGS.ways[1:]:
        ratio = sum(figures[way]) / sum(figures[FLAGS.ways[0]])
        print(f"{way}: {ratio:.2f} of {FLAGS.ways[0]}")
    return figures


def memory(folder: Path) -> dict:
    """Measure the peak memory of a worker for texts of different sizes."""
    rng, figures = random.Random(0), {}
    words = [w for line in islice(sentences(folder), 20_000) for w in line.split()]
    for size in map(int, FLAGS.sizes):
        path = folder / f"{size}.txt"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(" ".join(rng.choices(words, k=3)) + "\n" for _ in range(size))
        command = [sys.executable, "-c", MEMORY, FLAGS.model, path, FLAGS.pool]
        command = [sys.executable, "-c", BETWEEN, *map(str, command)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        n, peak = map(int, done.stdout.split())
        assert n == size
        figures[size] = peak // 1024
        print(f"{size:,} sentences: peak_memory_mb {figures[size]:,}", flush=True)
    return figures


def sizes(folder: Path) -> dict:
    """Measure sentences per second and core, and bytes per sentence, of several models."""
    figures: dict = {}
    lines = [line.split() for line in islice(sentences(folder), FLAGS.n_sentences)]
    n_tokens, n_cores = sum(map(len, lines)), len(os.sched_getaffinity(0))
    for name in FLAGS.models:
        is_size = name in ("tiny", "small", "medium", "original")
        with tempfile.TemporaryDirectory() as temporary:
            files = common.random_model(name, Path(temporary)) if is_size else [name]
            embedder = ElmoEmbedder(*files)
        embedder.sentence_vectors(lines[:200])
        start = time.perf_counter()
        embedder.sentence_vectors(lines)
        seconds = time.perf_counter() - start
        rate = len(lines) / seconds / n_cores
        tokens = n_tokens / len(lines)
        figures[name] = {
            "sentences_per_core_s": round(rate, 1),
            "hours_for_1e9_on_100_cores": round(1e9 / rate / 100 / 3600, 1),
            "dim": embedder.dim,
            "bytes_pooled": 4 * embedder.dim,
            "bytes_top": round(4 * embedder.dim * tokens),
            "bytes_all": round(4 * embedder.dim * tokens * embedder.n_layers),
        }
        print(name, json.dumps(figures[name]), flush=True)
    return figures


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(FLAGS.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        figures = {"speed": speed, "memory": memory, "sizes": sizes}[FLAGS.what](folder)
    if FLAGS.json:
        Path(FLAGS.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app.run(main)
