#!/usr/bin/env python
"""Time, peak memory and file size of each output format of `bilm embed`.

Examples:
  python benchmarks/tables.py --n_sentences 1000000 --n_words 3
  python benchmarks/tables.py --check --layers all

Each format is one command in a separate process. Without --n_words, the sentences are the sentences
of classics_en, or of Python's documentation if that is missing; with it, they are random words. The
model is a packaged size with random weights, or a stored model; `tiny` shows the cost of the output
formats. --check compares all vectors with an `ElmoEmbedder`.
"""

import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import common
import h5py
import numpy as np
from absl import app, flags

from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.embedding_file import read_embeddings

FLAGS = flags.FLAGS
SIZES = ("tiny", "small", "medium", "original")
flags.DEFINE_string("model", "tiny", f"{', '.join(SIZES)} with random weights, or a stored model.")
flags.DEFINE_integer("n_sentences", 20_000, "Number of sentences.", 1)
flags.DEFINE_integer("n_words", None, "Random words per sentence [real sentences].", 1)
flags.DEFINE_string("layers", "average", "See bilm embed.")
flags.DEFINE_list("formats", ["npz", "hdf5", "parquet"], "Endings of the outputs.")
flags.DEFINE_list("pools", ["none", "mean"], "See bilm embed.")
flags.DEFINE_boolean("check", False, "Compare all vectors.")
flags.DEFINE_string("json", None, "JSON file for the figures.")

# A process in between: a direct child would count the memory of this process in its peak.
PEAK = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(status != 0)
"""


def choose(folder: Path) -> list[list[str]]:
    """Return the sentences to embed."""
    text = common.corpus(folder)
    if FLAGS.n_words is not None:
        rng = random.Random(0)
        words = Path(text.vocab_file).read_text(encoding="utf-8").split()[3:]
        return [rng.choices(words, k=FLAGS.n_words) for _ in range(FLAGS.n_sentences)]
    files = [Path(text.heldout), *sorted(Path(text.train).parent.iterdir())]
    lines = itertools.chain.from_iterable(common.sentences(file) for file in files)
    sentences = list(itertools.islice(lines, FLAGS.n_sentences))
    if len(sentences) < FLAGS.n_sentences:
        raise SystemExit(f"--n_sentences={FLAGS.n_sentences}: the text has {len(sentences)}")
    return sentences


def measure(model: list[str], corpus: Path, output: Path, pool: str) -> dict[str, float]:
    """Run `bilm embed`; return seconds, peak memory and file size."""
    command = [sys.executable, "-m", "bilm", "embed", "--quiet", *model, f"--input={corpus}"]
    command += [f"--output={output}", f"--pool={pool}", f"--layers={FLAGS.layers}"]
    start = time.perf_counter()
    peak = subprocess.run([sys.executable, "-c", PEAK, *command], check=True, capture_output=True)
    seconds, size = time.perf_counter() - start, output.stat().st_size
    return {"seconds": seconds, "peak_mb": int(peak.stdout) / 1024, "file_mb": size / 1e6}


def vectors_of(path: Path, pool: str) -> Iterator[np.ndarray]:
    """Yield the stored vectors of each sentence: ([layers,] T, D), or ([layers,] D) if pooled."""
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
                cells = [batch.column(name)[i].values for name in names]
                if pool == "none":
                    cells = [cell.flatten().to_numpy().reshape(len(cell), -1) for cell in cells]
                else:
                    cells = [cell.to_numpy() for cell in cells]
                yield cells[0] if names[0].startswith("vector") else np.stack(cells)


def largest_difference(found: Iterator[np.ndarray], embedder: ElmoEmbedder, sentences, pool: str):
    """Return the largest difference between stored vectors and vectors of an embedder."""
    layers = FLAGS.layers if FLAGS.layers.isalpha() else list(map(int, FLAGS.layers.split(",")))
    if pool == "none":
        expected = embedder.embed_sentences(sentences, layers)
    else:
        expected = embedder.sentence_vectors(sentences, layers, pool=pool)
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


def main(argv):
    del argv
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        is_size = FLAGS.model in SIZES
        files = common.random_model(FLAGS.model, folder) if is_size else [FLAGS.model]
        model = [f"--{k}={file}" for k, file in zip(("model", "weights"), files, strict=False)]
        sentences, corpus = choose(folder), folder / "corpus.txt"
        corpus.write_text("".join(f"{' '.join(words)}\n" for words in sentences), encoding="utf-8")
        for pool, ending in itertools.product(FLAGS.pools, FLAGS.formats):
            output = folder / f"out.{ending}"
            row = measure(model, corpus, output, pool)
            if FLAGS.check:
                found = vectors_of(output, pool)
                embedder = ElmoEmbedder(*files)
                row["largest_difference"] = largest_difference(found, embedder, sentences, pool)
            output.unlink()
            print(f"{ending}, {pool}: {json.dumps(row)}", flush=True)
            figures[f"{ending} {pool}"] = row
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
