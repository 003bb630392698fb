#!/usr/bin/env python
"""Compare `bilm.allennlp` with AllenNLP: vectors, masks and words per second, in turns.

Example:
  KERAS_BACKEND=torch python benchmarks/against_allennlp.py --python allennlp-env/bin/python

AllenNLP 2.10 requires a separate environment; --python is its interpreter. Both programs read the
same random weights and sentences, in batches in the order of the text, as a user's model does:
`Elmo` of each, and `ElmoEmbedder` of bilm, which caches words and packs sentences. AllenNLP's state
is reset before each batch, because bilm starts each sentence from zero state. Each program is a
process with PyTorch's default number of threads; the first batch is not timed.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import common
import h5py
import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("python", None, "Python of an environment with AllenNLP.", required=True)
flags.DEFINE_list("sizes", ["small", "original"], "Packaged sizes.")
flags.DEFINE_integer("n_sentences", 640, "Sentences of the text.", 1)
flags.DEFINE_integer("batch_size", 64, "Sentences per batch.", 1)
flags.DEFINE_integer("rounds", 3, "Turns.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

TOLERANCE = 1e-5
WAYS = {"allennlp": "Elmo of AllenNLP", "elmo": "Elmo of bilm", "embedder": "ElmoEmbedder of bilm"}
PROGRAM = """
import json, sys, time
import h5py
import numpy as np
way, options, weights, text, batch_size, output = sys.argv[1:]
sentences = [line.split() for line in open(text, encoding="utf-8")]
size = int(batch_size)
batches = [sentences[i : i + size] for i in range(0, len(sentences), size)]
if way == "allennlp":
    from allennlp import version
    from allennlp.modules.elmo import Elmo, batch_to_ids
    versions = f"AllenNLP {version.VERSION}"
else:
    from bilm.allennlp import Elmo, ElmoEmbedder, batch_to_ids
    versions = "bilm"
import torch
versions += f", PyTorch {torch.__version__}, NumPy {np.__version__}"
if way == "embedder":
    embedder = ElmoEmbedder(options, weights)
    run = lambda batch: embedder.embed_batch(batch)
else:
    elmo = Elmo(options, weights, 1, dropout=0).train(False)
    def run(batch):
        if way == "allennlp":
            elmo._elmo_lstm._elmo_lstm.reset_states()
        with torch.inference_mode():
            found = elmo(batch_to_ids(batch))
        return found["elmo_representations"][0].numpy(), found["mask"].numpy()
first = run(batches[0])
if way != "embedder":
    with h5py.File(output, "w") as file:
        file["vectors"], file["mask"] = first
else:
    embedder.embedder.clear_cache()
start = time.perf_counter()
for batch in batches:
    run(batch)
seconds = time.perf_counter() - start
print(json.dumps({"words_per_s": sum(map(len, sentences)) / seconds, "versions": versions}))
"""


def run(way: str, python: str, files: list[Path], batch_size: int, output: Path) -> dict:
    """Run a program and return its figures."""
    arguments = [way, *files, batch_size, output]
    command = [python, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(one: Path, other: Path) -> float:
    """Return the largest difference of vectors. Raises: ValueError for another mask or shape."""
    with h5py.File(one) as a, h5py.File(other) as b:
        if not np.array_equal(a["mask"], b["mask"]):
            raise ValueError("the masks differ")
        return float(np.abs(a["vectors"][()] - b["vectors"][()]).max())


def measure(size: str, folder: Path) -> dict:
    """Measure one size and print its figures."""
    text = common.corpus(folder)
    sentences = common.sentences(text.heldout)[: FLAGS.n_sentences]
    path = folder / "sentences.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    files = [*common.random_model(size, folder), path]
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    outputs = {way: folder / f"{way}.hdf5" for way in WAYS}
    for turn in range(FLAGS.rounds):
        for way in WAYS:
            python = FLAGS.python if way == "allennlp" else sys.executable
            found = run(way, python, files, FLAGS.batch_size, outputs[way])
            rates[way].append(found["words_per_s"])
            versions = found["versions"]
            print(f"{size}, turn {turn + 1}: {found['words_per_s']:,.0f} words/s, {WAYS[way]}"
                  f" ({versions})", flush=True)  # fmt: skip
    difference = compare(outputs["allennlp"], outputs["elmo"])
    if not difference <= TOLERANCE:
        raise ValueError(f"{size}: the vectors differ by {difference}, expected {TOLERANCE}")
    medians = {way: statistics.median(values) for way, values in rates.items()}
    ratios = {way: medians[way] / medians["allennlp"] for way in ("elmo", "embedder")}
    print(f"{size}: difference {difference:.2g}; {ratios['elmo']:.2f} x (Elmo) and "
          f"{ratios['embedder']:.2f} x (ElmoEmbedder) the speed of AllenNLP")  # fmt: skip
    return {"difference": difference, "words_per_s": medians, "ratios": ratios}


def main(_: list[str]) -> None:
    figures = {}
    for size in FLAGS.sizes:
        with tempfile.TemporaryDirectory() as folder:
            figures[size] = measure(size, Path(folder))
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
