#!/usr/bin/env python
"""Forward language models on the same text, vocabulary, test set and processor time.

Example:
  python benchmarks/peers.py --tokens 50000 --hours 0.03 --output quick --peers bilm,ngram

Peers: bilm (`bilm train`, with the recipe of `auto` by default, in the forward direction, for at
most as many epochs as the recipe has), ngram (interpolated 5-grams with modified Kneser-Ney
smoothing, by KenLM), lstm (PyTorch, after AWD-LSTM) and transformer (GPT-2 of `transformers`). The
budget of each neural peer is --hours times the number of cores, in processor time; the 5-gram model
is finished after seconds. The same command continues after an interruption, with finished peers.

Rules for all peers: the vocabulary contains the words that occur at least twice in the training
part of classics_en; other words are <UNK>, whose predictions count. Every word and the </S> of
every sentence is predicted, by the full vocabulary; <S> is read and not predicted. The perplexity
is measured on the whole dev.txt, divided among 128 rows as `bilm test` does. LSTMs carry their
state from sentence to sentence within a row. The transformer reads a window of 64 words and up to
64 earlier words of its row. The 5-gram model reads no earlier sentence. Points of the picture are
measured on every eighth sentence; their processor time is not counted, except for bilm.

The output contains peers.md, and peers.png if matplotlib is installed. Requires torch, transformers
and kenlm, whose source distribution on PyPI contains --lmplz (cmake, then make lmplz).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

with suppress(ImportError):  # PyTorch 2.14.1 crashes if this is imported after TensorFlow
    import torch._dynamo  # noqa: F401
import common
import numpy as np
from absl import app, flags
from common import bilm

from bilm.data.dataset import LMDataset
from bilm.data.vocabulary import Vocabulary
from bilm.options.run_options import load_run_options
from bilm.storage.stored_model import open_model
from bilm.support.files import replacing
from bilm.training.auto import options_for
from bilm.training.history import read_history

PEERS = ("ngram", "bilm", "lstm", "transformer")
ROWS, TEST_STEPS = 128, 20
COLUMNS = (
    "tokens", "peer", "perplexity", "predictions", "cpu_hours", "wall_hours", "parameters",
)  # fmt: skip

# Threads of PyTorch that wait for each other would use processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

FLAGS = flags.FLAGS
flags.DEFINE_list("tokens", ["350000", "1000000", "3440000"], "Numbers of training tokens.")
flags.DEFINE_float("hours", 1.0, "Processor time of each neural peer, in hours of all cores.", 0)
flags.DEFINE_list("peers", [*PEERS], "Peers to train.")
flags.DEFINE_string("output", "peers", "Folder of results.")
flags.DEFINE_string("options", "auto", "Options of bilm: auto, another name, or a file.")
flags.DEFINE_enum("precision", "bfloat16", ("float32", "bfloat16"), "Precision of products.")
flags.DEFINE_string("lmplz", "lmplz", "Program that estimates the 5-gram model.")
flags.DEFINE_integer(
    "negatives", 8192, "Negatives of the PyTorch peers; 0, or at least the words: full softmax.", 0
)


class Texts:
    """The training part, its vocabulary, the test text, and a smaller part of it for curves."""

    def __init__(self, folder: Path, n_tokens: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.train, self.vocab_file = folder, folder / "train.txt", folder / "vocab"
        self.test, self.curve = common.CLASSICS / "dev.txt", folder / "curve.txt"
        if not self.vocab_file.exists():
            self._write(n_tokens)
        self.vocab = Vocabulary(self.vocab_file)

    def _write(self, n_tokens: int) -> None:
        n_read, lines = 0, []
        for path in sorted((common.CLASSICS / "train").iterdir()):
            for words in common.sentences(path):
                if n_read < n_tokens:
                    lines.append(" ".join(words))
                    n_read += len(words)
        self.train.write_text("\n".join(lines) + "\n", encoding="utf-8")
        part = [" ".join(words) for words in common.sentences(self.test)[::8]]
        self.curve.write_text("\n".join(part) + "\n", encoding="utf-8")
        bilm("vocab", "--input", self.train, "--output", self.vocab_file, "--min_count", 2)

    def training_windows(self, n_rows: int, n_steps: int):
        """Return endless windows of shuffled text."""
        return LMDataset(str(self.train), self.vocab, shuffle_on_load=True).iter_batches(
            n_rows, n_steps
        )

    def test_windows(self, path: Path, n_steps: int):
        """Return windows with every prediction of a text once."""
        return LMDataset(str(path), self.vocab, test=True).iter_evaluation(ROWS, n_steps)

    def known_words(self, path: Path) -> list[str]:
        """Return the sentences with <UNK> for each word outside the vocabulary."""
        return [
            " ".join(word if word in self.vocab else "<UNK>" for word in words)
            for words in common.sentences(path)
        ]


def budget_seconds() -> float:
    return FLAGS.hours * 3600 * len(os.sched_getaffinity(0))


def run_ngram(texts: Texts) -> dict[str, Any]:
    import peer_models

    arpa, start = texts.folder / "ngram.arpa", common.children_seconds()
    peer_models.train_ngram(FLAGS.lmplz, "\n".join(texts.known_words(texts.train)), arpa)
    seconds = common.children_seconds() - start
    logs = peer_models.ngram_log_probabilities(arpa, texts.known_words(texts.test))
    with open(arpa, encoding="utf-8") as file:
        head = file.read(1000)
    return {
        "perplexity": float(np.exp(-logs.mean())),
        "predictions": len(logs),
        "seconds": seconds,
        "parameters": sum(map(int, re.findall(r"^ngram \d=(\d+)$", head, re.M))),
        "curve": [],
    }


def run_torch(texts: Texts, name: str) -> dict[str, Any]:
    import peer_models
    import torch

    torch.manual_seed(0)
    make = {"lstm": peer_models.make_lstm, "transformer": peer_models.make_transformer}[name]
    model, rate, n_rows, n_steps, test_steps = make(texts.vocab.size), 0.003, 32, 35, TEST_STEPS
    if model.max_steps is not None:
        rate, n_rows, n_steps, test_steps = 0.001, 16, model.max_steps, model.max_steps // 2
    n_negatives = FLAGS.negatives if FLAGS.negatives < texts.vocab.size else 0
    points = peer_models.train_torch(
        model,
        texts.training_windows(n_rows, n_steps),
        lambda: texts.test_windows(texts.curve, test_steps),
        budget_seconds(), n_negatives, rate, FLAGS.precision,
    )  # fmt: skip
    found, count = peer_models.torch_perplexity(model, texts.test_windows(texts.test, test_steps))
    return {
        "perplexity": found,
        "predictions": count,
        "seconds": points[-1]["seconds"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": points,
    }


def run_bilm(texts: Texts) -> dict[str, Any]:
    run = texts.folder / "bilm_run"
    base = ["train", "--input", texts.train, "--vocab", texts.vocab_file]
    if FLAGS.options == "auto":
        sentences = common.sentences(texts.train)
        options = options_for(sum(len(words) + 1 for words in sentences))
    else:
        options = load_run_options(FLAGS.options)
    n_negatives = min(options.n_negative_samples_batch, texts.vocab.size // 2)
    options = options.replace(bidirectional=False, n_negative_samples_batch=n_negatives)
    options_file = texts.folder / "options.json"
    options_file.write_text(json.dumps(options.to_dict()), encoding="utf-8")
    base += ["--options", options_file, "--precision", FLAGS.precision]
    n_steps = n_affordable_steps(base, texts)
    if FLAGS.options == "auto":
        n_useful = options.n_epochs * options.n_train_tokens
        n_steps = min(n_steps, n_useful // (options.batch_size * options.unroll_steps))
        options = options.replace(warmup_steps=min(options.warmup_steps, n_steps // 5))
        options_file.write_text(json.dumps(options.to_dict()))
    shutil.rmtree(run, ignore_errors=True)  # interrupted: its processor time is not known
    start = common.children_seconds()
    bilm(*base, "--heldout", texts.curve, "--checkpoint_minutes", 60, "--output", run,
         "--n_steps", n_steps, "--eval_steps", max(1, n_steps // 8))  # fmt: skip
    seconds = common.children_seconds() - start
    figures = json.loads(
        bilm("test", "--model", run, "--input", texts.test, "--batch_size", ROWS, "--json")
    )
    rows = [row for row in read_history(run / "history.csv") if row["heldout_forward"]]
    last = max(int(row["step"]) for row in rows)
    curve = [
        {"seconds": seconds * int(row["step"]) / last, "perplexity": float(row["heldout_forward"])}
        for row in rows
    ]
    model = open_model(run).weights(has_softmax=True).build()
    return {
        "perplexity": figures["forward_perplexity"],
        "predictions": figures["predictions_per_direction"],
        "seconds": seconds,
        "parameters": sum(int(np.prod(v.shape)) for v in model.variables),
        "curve": curve,
    }


def n_affordable_steps(base: list, texts: Texts) -> int:
    """Return the number of steps that fit into the budget, from two short runs."""
    used = []
    few, more = 20, 60
    for n_steps in (few, more):
        folder = texts.folder / f"probe_{n_steps}_{time.time_ns()}"
        start = common.children_seconds()
        bilm(*base, "--output", folder, "--n_steps", n_steps)
        used.append(common.children_seconds() - start)
    per_step = (used[1] - used[0]) / (more - few)
    fixed = used[0] - few * per_step
    return max(more, int((budget_seconds() - fixed) / per_step))


def result_of(peer: str, texts: Texts, n_tokens: int) -> dict[str, Any]:
    """Return the stored result of a peer, or train it."""
    path = texts.folder / f"{peer}.json"
    if not path.exists():
        start = time.perf_counter()
        train = {"ngram": run_ngram, "bilm": run_bilm}.get(peer)
        found = train(texts) if train else run_torch(texts, peer)
        found["wall_hours"] = (time.perf_counter() - start) / 3600
        found["cpu_hours"] = found.pop("seconds") / 3600
        with replacing(path) as part:
            Path(part).write_text(json.dumps({"tokens": n_tokens, "peer": peer} | found))
    return json.loads(path.read_text())


def plot(results: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    sizes = list(dict.fromkeys(result["tokens"] for result in results))
    figure = Figure(figsize=(4 * len(sizes), 4), layout="constrained")
    for axes, size in zip(np.ravel(figure.subplots(1, len(sizes))), sizes, strict=True):
        for result in (r for r in results if r["tokens"] == size):
            if result["curve"]:
                hours = [point["seconds"] / 3600 for point in result["curve"]]
                values = [point["perplexity"] for point in result["curve"]]
                axes.plot(hours, values, "o-", label=result["peer"])
            else:
                axes.axhline(result["perplexity"], ls="--", color="0.5", label=result["peer"])
        axes.set(title=f"{size:,} tokens", xlabel="processor hours")
        axes.set_ylabel("held-out perplexity, forward")
        axes.legend()
    figure.savefig(path)


def main(_: list[str]) -> None:
    if "ngram" in FLAGS.peers and not shutil.which(FLAGS.lmplz):
        sys.exit(f"--lmplz: found {FLAGS.lmplz}, expected KenLM's program lmplz (see --help)")
    output, results, rows = Path(FLAGS.output), [], []
    common.require_settings(output, "hours", "options", "negatives", "precision")
    for n_tokens in map(int, FLAGS.tokens):
        texts = Texts(output / str(n_tokens), n_tokens)
        for peer in FLAGS.peers:
            result = result_of(peer, texts, n_tokens)
            print(", ".join(f"{name} {result[name]}" for name in COLUMNS), flush=True)
            values = [result[name] for name in COLUMNS]
            rows.append([f"{v:,.4g}" if isinstance(v, float) else str(v) for v in values])
            results.append(result)
    text = common.markdown(COLUMNS, rows)
    (output / "peers.md").write_text(text, encoding="utf-8")
    print(text)
    if find_spec("matplotlib"):
        plot(results, output / "peers.png")


if __name__ == "__main__":
    app.run(main)
