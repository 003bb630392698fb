#!/usr/bin/env python
"""Milliseconds that one sentence of 20 words takes, beside other programs, in turns.

Examples:
  python benchmarks/latency.py --model original --peer bilm_tf --bilm_tf_python tf1/bin/python
  python benchmarks/latency.py --model novels-en --model small --precision float32 --busy 3

A model is a packaged size with random weights, or a stored model. `ElmoEmbedder.embed_sentence`
runs in a separate process for each precision, with the environment of this program and without
any setting of threads or memory. It embeds each sentence twice: with an empty cache of words
(uncached) and again (cached). Peers run in processes of the given Pythons and read the same models
(minilm: its own) and sentences: bilm_tf is the reference implementation (package `bilm` on PyPI,
TensorFlow 1.15, Python 3.6), allennlp is `Elmo` of AllenNLP, minilm is all-MiniLM-L6-v2 with
sentence-transformers, which computes one vector per sentence.

The processes of a model take turns of a few different sentences. Sentences that warm a process up
at its start, and the first sentence of each turn, are not counted. The times include everything
from the words to an array of NumPy, such as the conversion into characters.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TypeAlias

import common
import numpy as np
from absl import app, flags

from bilm.data.vocabulary import MARKS
from bilm.options.run_options import packaged_options
from bilm.precisions import INFERENCE_PRECISIONS
from bilm.storage.stored_model import open_model

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("model", ["small"], "Packaged size or stored model.")
flags.DEFINE_multi_enum(
    "precision", ["float32", "bfloat16", "int8"], INFERENCE_PRECISIONS, "Precision of bilm."
)
flags.DEFINE_multi_enum("peer", [], ["bilm_tf", "allennlp", "minilm"], "Other program.")
flags.DEFINE_string("bilm_tf_python", None, "Python with TensorFlow 1 and PyPI's bilm.")
flags.DEFINE_string("allennlp_python", None, "Python with AllenNLP.")
flags.DEFINE_string("minilm_python", sys.executable, "Python with sentence-transformers.")
flags.DEFINE_string("minilm_model", "all-MiniLM-L6-v2", "Name or folder of MiniLM's model.")
flags.DEFINE_integer("n_words", 20, "Words per sentence.", 1)
flags.DEFINE_integer("n_sentences", 60, "Sentences that are counted.", 1)
flags.DEFINE_integer("rounds", 5, "Turns of each process.", 1)
flags.DEFINE_integer("n_warm_up", 10, "Sentences that warm a process up.", 0)
flags.DEFINE_integer("busy", 0, "Other processes that use a core each meanwhile.", 0)
flags.DEFINE_string("json", None, "JSON file for the figures.")

Times: TypeAlias = dict[str, list[float]]  # milliseconds of uncached and cached sentences
WORKER = Path(__file__).with_name("latency_worker.py")
QUANTILES = 50, 95, 99
LOAD_SECONDS = 150  # until a mean load is almost that of the last minute


class Worker:
    """A process that embeds one sentence at a time."""

    def __init__(self, python: str, *words: object):
        # A peer must not import this project's bilm: -I ignores PYTHONPATH and the folder.
        isolated = [] if words[0] == "bilm" else ["-I"]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, *isolated, WORKER, *map(str, words)], env=common.ENVIRONMENT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        self.versions = self._answer()
        self.times: Times = {}

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._log.close()

    def _answer(self) -> dict:
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        status = self._process.wait()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        raise RuntimeError(f"{self._process.args} ended with status {status}:\n{log}")

    def embed(self, words: list[str]) -> dict[str, float]:
        """Embed a sentence and return the milliseconds."""
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def turn(self, sentences: list[list[str]]) -> None:
        """Embed sentences and keep their times, except the time of the first sentence."""
        self.embed(sentences[0])
        for words in sentences[1:]:
            for kind, milliseconds in self.embed(words).items():
                self.times.setdefault(kind, []).append(milliseconds)


def sentences(folder: Path) -> Iterator[list[str]]:
    """Yield the words of a text, `--n_words` at a time."""
    folder.mkdir()
    words = chain.from_iterable(common.sentences(common.corpus(folder).heldout))
    while len(found := list(islice(words, FLAGS.n_words))) == FLAGS.n_words:
        yield found


def workers(model: str, folder: Path) -> Iterator[tuple[str, Worker]]:
    """Start the processes of a model. Yields: their names and the processes."""
    stored: Sequence[object] = [model]  # what `ElmoEmbedder` opens
    files: Sequence[Path] = []  # options and weights, as the peers read them
    if model in packaged_options():
        stored = files = common.random_model(model, folder)
    elif FLAGS.peer:
        files = common.write_model(open_model(model).build(), folder)
    vocab_file = folder / "marks.txt"
    vocab_file.write_text("\n".join(MARKS), encoding="utf-8")
    arguments = {
        "bilm_tf": [FLAGS.bilm_tf_python, "bilm_tf", *files, vocab_file],
        "allennlp": [FLAGS.allennlp_python, "allennlp", *files],
        "minilm": [FLAGS.minilm_python, "minilm", FLAGS.minilm_model],
    }
    for peer in FLAGS.peer:
        yield peer, Worker(*arguments[peer])
    for precision in FLAGS.precision:
        yield f"bilm {precision}", Worker(sys.executable, "bilm", precision, *stored)


def measure(model: str, folder: Path) -> dict[str, dict]:
    """Measure the processes of a model in turns; return the figures of each."""
    n_per_turn = 1 + math.ceil(FLAGS.n_sentences / FLAGS.rounds)  # with the one not counted
    text = sentences(folder / "text")
    with ExitStack() as stack:
        processes = {}
        for name, worker in workers(model, folder):
            processes[name] = stack.enter_context(closing(worker))
        warm_up = list(islice(text, FLAGS.n_warm_up))
        for worker in processes.values():
            for words in warm_up:
                worker.embed(words)
        for _ in range(FLAGS.rounds):
            turn = list(islice(text, n_per_turn))
            for worker in processes.values():
                worker.turn(turn)
    figures = {}
    for name, worker in processes.items():
        for kind, times in worker.times.items():
            row = {f"p{q}": float(np.percentile(times, q)) for q in QUANTILES}  # ms
            row |= {"n": len(times), "versions": worker.versions}
            figures[f"{name}, cached" if kind == "cached" else name] = row
    return figures


def report(model: str, figures: dict[str, dict]) -> None:
    """Print the percentiles of a model, and the ratios to bilm_tf if it was measured."""
    print(f"{model + ', ms':>32} {'median':>8} {'p95':>8} {'p99':>8}"
          + "  / bilm_tf: median, p99" * ("bilm_tf" in figures))  # fmt: skip
    reference = figures.get("bilm_tf")
    for name, row in figures.items():
        times = " ".join(f"{row[f'p{q}']:8.1f}" for q in QUANTILES)
        ratios = [row[key] / reference[key] for key in ("p50", "p99")] if reference else []
        print(f"{name:>32} {times}", *(f"{ratio:8.2f}" for ratio in ratios), flush=True)


@contextmanager
def busy_machine() -> Iterator[None]:
    """Let other processes use cores in the block, once the load of the last minute shows them."""
    endless = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(endless) for _ in range(FLAGS.busy)]
    try:
        if others:
            time.sleep(LOAD_SECONDS)
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def main(_: list[str]) -> None:
    for peer in FLAGS.peer:
        if not getattr(FLAGS, f"{peer}_python"):
            raise app.UsageError(f"--peer {peer} requires --{peer}_python")
    figures = {}
    for model in FLAGS.model:
        with tempfile.TemporaryDirectory() as folder, busy_machine():
            figures[model] = measure(model, Path(folder))
        report(model, figures[model])
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
