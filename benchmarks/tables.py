#!/usr/bin/env python
"""Time, peak memory and size of each format that `bilm embed` writes, and whether it is right.

Examples:
  python benchmarks/tables.py --n_sentences 1000000 --n_words 3
  python benchmarks/tables.py --n_sentences 20000 --check --kill_parts 3

Each format is written by a process of its own. Without --n_words the sentences are those of
classics_en, or of the demo's text if classics_en is missing; with it, random words of these. The
model has the size of --model with random weights; `tiny` shows what tables cost beside it. --check
compares every vector with those of an `ElmoEmbedder`. --kill_parts kills each process once so many
parts are closed, has it continue, and compares the file with that of an undisturbed one.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import common
import h5py
import numpy as np
import random_model
from absl import app, flags

from bilm.data.records import read_corpus
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import read_embeddings

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "tiny", ["tiny", "small", "original"], "One of the packaged sizes.")
flags.DEFINE_integer("n_sentences", 20_000, "Sentences.", 1)
flags.DEFINE_integer("n_words", None, "Words of each, at random; real sentences without it.", 1)
flags.DEFINE_string("layers", "average", "See bilm embed.")
flags.DEFINE_string("dtype", "float32", "See bilm embed.")
flags.DEFINE_list("formats", ["npz", "hdf5", "parquet"], "Endings of the files.")
flags.DEFINE_list("pools", ["none", "mean"], "See bilm embed.")
flags.DEFINE_boolean("check", False, "Compare every vector.")
flags.DEFINE_integer("kill_parts", None, "Closed parts at which each process is killed once.", 1)
flags.DEFINE_integer("part_sentences", 1000, "See bilm embed.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")


def write_text(path, folder):
    text = common.corpus(folder)
    if FLAGS.n_words is None:
        train = sorted(Path(text.train).parent.iterdir())
        lines = (line for file in (Path(text.heldout), *train) for line in read_corpus(file))
        sentences = (words for _, words in zip(range(FLAGS.n_sentences), lines, strict=False))
    else:
        rng = random.Random(0)
        words = Path(text.vocab_file).read_text(encoding="utf-8").split()[3:]
        sentences = (rng.choices(words, k=FLAGS.n_words) for _ in range(FLAGS.n_sentences))
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(" ".join(words) + "\n" for words in sentences)


def embed(text, files, outfile, pool, kill_parts=None):
    """Run `bilm embed` and return seconds and peak memory in MB; kill it at so many parts."""
    command = [sys.executable, "-m", "bilm", "embed", "--quiet", f"--pool={pool}"]
    command += ["--model", files[0], "--weights", files[1], "--input", text, "--output", outfile]
    command += [f"--layers={FLAGS.layers}", f"--dtype={FLAGS.dtype}"]
    command += [f"--part_sentences={FLAGS.part_sentences}"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while kill_parts is not None and not outfile.exists():
        if len(list(outfile.parent.glob("out.*.parts/0*"))) >= kill_parts:
            process.kill()
            kill_parts = None
        time.sleep(0.01)
    _, status, usage = os.wait4(process.pid, 0)
    if status not in (0, signal.SIGKILL):
        raise SystemExit(f"bilm embed failed: {status}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def vectors_of(path, pool):
    """Yield what a file holds of each sentence: (T, D), or (D,) if pooled."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as file:
            names = ["vectors", *(["offsets"] if pool == "none" else [])]
            arrays = [np.lib.format.read_array(file.open(f"{name}.npy")) for name in names]
        yield from arrays[0] if pool != "none" else np.split(arrays[0], arrays[1][1:-1])
    elif path.suffix == ".hdf5" and pool != "none":
        with h5py.File(path) as file:
            yield from file["vectors"][:]
    elif path.suffix == ".hdf5":
        yield from (vectors for _, _, vectors in read_embeddings(path))
    else:
        import pyarrow.parquet as pq

        column = "vector" if pool != "none" else "vectors"
        for batch in pq.ParquetFile(path).iter_batches(1024, columns=[column]):
            for row in batch.column(0):
                values = row.values if pool == "none" else row
                flat = (values.flatten() if pool == "none" else values.values).to_numpy()
                yield flat.reshape(len(values), -1) if pool == "none" else flat


def largest_difference(embedder, text, path, pool):
    """Return the largest difference from an embedder, which runs anew."""
    sentences = read_corpus(text)
    if pool == "none":
        expected = embedder.embed_sentences(sentences, FLAGS.layers)
    else:
        expected = embedder.sentence_vectors(sentences, FLAGS.layers, pool=pool)
    largest, n = 0.0, 0
    for found, vectors in zip(vectors_of(path, pool), expected, strict=True):
        assert found.dtype == FLAGS.dtype and found.shape == vectors.shape, found.shape
        largest, n = max(largest, float(np.abs(found - vectors).max(initial=0))), n + 1
    assert n == FLAGS.n_sentences, n
    return largest


def main(argv):
    del argv
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files, text = random_model.write(FLAGS.model, folder), folder / "text.txt"
        write_text(text, folder)
        embedder = ElmoEmbedder(*files) if FLAGS.check else None
        for ending in FLAGS.formats:
            for pool in FLAGS.pools:
                path, row = folder / f"out.{ending}", {}
                row["seconds"], row["peak_mb"] = embed(text, files, path, pool)
                row["file_mb"] = path.stat().st_size / 1e6
                if embedder is not None:
                    row["largest_difference"] = largest_difference(embedder, text, path, pool)
                if FLAGS.kill_parts is not None:
                    whole = hashlib.sha256(path.read_bytes()).digest()
                    path.unlink()
                    embed(text, files, path, pool, FLAGS.kill_parts)
                    row["parts_when_killed"] = len(list(folder.glob("out.*.parts/0*")))
                    embed(text, files, path, pool)
                    row["equal"] = hashlib.sha256(path.read_bytes()).digest() == whole
                path.unlink()
                print(f"{ending} {pool}: {json.dumps(row)}", flush=True)
                figures[f"{ending} {pool}"] = row
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
