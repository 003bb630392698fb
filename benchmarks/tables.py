#!/usr/bin/env python
"""Time, peak memory and size of each format that `bilm embed` writes, and whether it is right.

Examples:
  python benchmarks/tables.py --n_sentences 1000000 --n_words 3
  python benchmarks/tables.py --here --check --inputs txt,csv,tsv,jsonl,conllu,fasta,parquet
  python benchmarks/tables.py --check --layers all --dtype float16 --kills 4

Every input is embedded into every format, each time by a process of its own. Without --n_words the
sentences are those of classics_en, or of the demo's text if classics_en is missing; with it, random
words of these. The model is a packaged size with random weights, or a stored one; `tiny` shows what
tables cost beside it. --check compares every vector with those of an `ElmoEmbedder`. --kills kills
the process so often at random moments, has it continue each time, and compares the file with that
of an undisturbed one.
"""

import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import common
import corpus_forms
import h5py
import numpy as np
import random_model
from absl import app, flags

from bilm.commands import command, embed
from bilm.data.records import read_corpus
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import read_embeddings
from bilm.files import sha256_of

FLAGS = flags.FLAGS
SIZES = ("tiny", "small", "medium", "original")
flags.DEFINE_string("model", "tiny", f"{', '.join(SIZES)} with random weights, or a stored model.")
flags.DEFINE_integer("n_sentences", 20_000, "Sentences.", 1)
flags.DEFINE_integer("n_words", None, "Words of each, at random; real sentences without it.", 1)
flags.DEFINE_string("layers", "average", "See bilm embed.")
flags.DEFINE_enum("dtype", "float32", ["float32", "float16"], "See bilm embed.")
flags.DEFINE_list("inputs", ["txt"], f"Endings of the corpora, of {', '.join(corpus_forms.FORMS)}.")
flags.DEFINE_list("formats", ["npz", "hdf5", "parquet"], "Endings of the files.")
flags.DEFINE_list("pools", ["none", "mean"], "See bilm embed.")
flags.DEFINE_boolean("check", False, "Compare every vector.")
flags.DEFINE_boolean("here", False, "Start no process for each command; memory is that of all.")
flags.DEFINE_integer("kills", 0, "How often each process is killed.", 0)
flags.DEFINE_integer("seed", 0, "Of the moments of kills.")
flags.DEFINE_integer("part_sentences", 1000, "See bilm embed.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

# In a process between: one that is forked counts the memory of its parent as its own peak.
PEAK = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(status != 0)
"""


class Task(NamedTuple):
    """What one command does: from a corpus to a file of vectors."""

    model: list[str]
    corpus: list[str]
    outfile: Path
    pool: str

    def command(self) -> list[str]:
        """Return the command line of `bilm embed`."""
        return [sys.executable, "-m", "bilm", "embed", *self.words()]

    def words(self) -> list[str]:
        """Return what follows `bilm embed`."""
        words = ["--quiet", *self.model, *self.corpus, "--output", str(self.outfile)]
        words += [f"--pool={self.pool}", f"--layers={FLAGS.layers}", f"--dtype={FLAGS.dtype}"]
        return [*words, f"--part_sentences={FLAGS.part_sentences}"]

    def finish(self) -> tuple[float, float]:
        """Run the command and return seconds and peak memory in MB."""
        start = time.perf_counter()
        if FLAGS.here:
            if command.run(embed, "bilm embed", self.words()):
                raise SystemExit(1)
            return time.perf_counter() - start, common.peak_memory_mb()
        peak = subprocess.run(
            [sys.executable, "-c", PEAK, *self.command()], check=True, stdout=subprocess.PIPE
        )
        return time.perf_counter() - start, int(peak.stdout) / 1024

    def parts(self) -> int:
        """Return how many parts are closed."""
        return len(list(self.outfile.parent.glob("out.*.parts/0*")))


def choose(folder: Path) -> list[list[str]]:
    """Return the sentences that are embedded."""
    text = common.corpus(folder)
    if FLAGS.n_words is not None:
        rng = random.Random(0)
        words = Path(text.vocab_file).read_text(encoding="utf-8").split()[3:]
        return [rng.choices(words, k=FLAGS.n_words) for _ in range(FLAGS.n_sentences)]
    files = [Path(text.heldout), *sorted(Path(text.train).parent.iterdir())]
    lines = (words for file in files for words in read_corpus(file) if words)
    sentences = list(itertools.islice(lines, FLAGS.n_sentences))
    if len(sentences) < FLAGS.n_sentences:
        raise SystemExit(f"--n_sentences={FLAGS.n_sentences}: the text has {len(sentences)}")
    return sentences


def kill(task: Task, seconds: float) -> dict[str, object]:
    """Kill a task at random moments and let it finish; compare its file with an undisturbed one."""
    rng, parts = random.Random(f"{FLAGS.seed}/{task.outfile.name}/{task.pool}"), []
    whole = sha256_of(task.outfile)
    task.outfile.unlink()
    for _ in range(FLAGS.kills):
        process = subprocess.Popen(task.command(), stdout=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() == -signal.SIGKILL:
            parts.append(task.parts())
        if task.outfile.exists() and sha256_of(task.outfile) != whole:
            raise SystemExit(f"{task.outfile}: not whole after a kill")
    task.finish()
    rest = [path.name for path in task.outfile.parent.glob("*out.*") if path != task.outfile]
    if sha256_of(task.outfile) != whole or rest:
        raise SystemExit(f"{task.outfile}: differs after kills, or leaves {rest}")
    return {"closed_parts_at_kills": parts, "equal": True}


def vectors_of(path: Path, pool: str) -> Iterator[np.ndarray]:
    """Yield what a file holds of each sentence: ([layers,] T, D), or ([layers,] D) if pooled."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as file:
            names = ["vectors", *(["offsets"] if pool == "none" else [])]
            arrays = [np.lib.format.read_array(file.open(f"{name}.npy")) for name in names]
        rows = arrays[0] if pool != "none" else np.split(arrays[0], arrays[1][1:-1])
        yield from (row.swapaxes(0, 1) if row.ndim == 3 else row for row in rows)
    elif path.suffix == ".hdf5" and pool != "none":
        with h5py.File(path) as file:
            yield from file["vectors"][:]
    elif path.suffix == ".hdf5":
        yield from (vectors for _, _, vectors in read_embeddings(path))
    else:
        yield from _rows_of_parquet(path, pool)


def _rows_of_parquet(path: Path, pool: str) -> Iterator[np.ndarray]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name.startswith(("vector", "layer_"))]
        for batch in file.iter_batches(1024, columns=names):
            for i in range(batch.num_rows):
                cells = [batch.column(name)[i] for name in names]
                if pool == "none":
                    arrays = [
                        cell.values.flatten().to_numpy().reshape(len(cell), -1) for cell in cells
                    ]
                else:
                    arrays = [cell.values.to_numpy() for cell in cells]
                yield arrays[0] if names[0].startswith("vector") else np.stack(arrays)


def largest_difference(found: Iterator[np.ndarray], expected: list[np.ndarray]) -> float:
    """Return the largest difference between vectors as they are stored."""
    largest = 0.0
    for stored, vectors in zip(found, expected, strict=True):
        vectors = vectors.astype(FLAGS.dtype)
        if stored.dtype != vectors.dtype or stored.shape != vectors.shape:
            raise SystemExit(f"found {stored.dtype} {stored.shape}, expected {vectors.shape}")
        difference = np.abs(stored.astype(np.float64) - vectors)
        largest = max(largest, float(difference.max(initial=0)))
    return largest


def expected(embedder: ElmoEmbedder, sentences, pool: str) -> list[np.ndarray]:
    """Return what an embedder gives for sentences."""
    layers = FLAGS.layers if FLAGS.layers.isalpha() else list(map(int, FLAGS.layers.split(",")))
    if pool == "none":
        return list(embedder.embed_sentences(sentences, layers))
    return list(embedder.sentence_vectors(sentences, layers, pool=pool))


def main(argv):
    del argv
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = random_model.write(FLAGS.model, folder) if FLAGS.model in SIZES else [FLAGS.model]
        model = [
            f"--{flag}={file}" for flag, file in zip(("model", "weights"), files, strict=False)
        ]
        embedder, sentences = ElmoEmbedder(*files) if FLAGS.check else None, choose(folder)
        for pool, form in itertools.product(FLAGS.pools, FLAGS.inputs):
            corpus, how = corpus_forms.write(form, sentences, folder)
            words = corpus_forms.words_read(form, sentences)
            vectors = None if embedder is None else expected(embedder, words, pool)
            for ending in FLAGS.formats:
                task = Task(model, [f"--input={corpus}", *how], folder / f"out.{ending}", pool)
                row = measure(task, vectors)
                print(f"{form} -> {ending}, {pool}: {json.dumps(row)}", flush=True)
                figures[f"{form} {ending} {pool}"] = row
            corpus.unlink()
    common.write_json(FLAGS.json, figures)


def measure(task: Task, vectors: list[np.ndarray] | None) -> dict[str, object]:
    """Run a task, check its file if vectors are given, kill it, and return the figures."""
    seconds, peak_mb = task.finish()
    row = {"seconds": seconds, "peak_mb": peak_mb, "file_mb": task.outfile.stat().st_size / 1e6}
    if vectors is not None:
        found = vectors_of(task.outfile, task.pool)
        row["largest_difference"] = largest_difference(found, vectors)
    if FLAGS.kills:
        row |= kill(task, seconds)
    task.outfile.unlink()
    return row


if __name__ == "__main__":
    app.run(main)
