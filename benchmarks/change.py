#!/usr/bin/env python
"""Find words that were swapped in one half of a corpus, and count false alarms of the test.

The sentences of classics_en are divided into two random halves. In the second one, the words of 20
pairs of similar frequency are swapped. Every measure ranks the swapped words and words that were
not swapped; the benchmark prints the area under the curve (1: all swapped words first) and the
share of the other words with p < 0.05.

Examples:
  python benchmarks/change.py
  python benchmarks/change.py --n_words 100 --sample 100 --json change.json
"""

import re
import tempfile
from collections import Counter
from pathlib import Path

import common
import numpy as np
from absl import app, flags
from sklearn.metrics import roc_auc_score

from bilm.analysis import find_usages, parse_query, write_usages
from bilm.analysis.change import Settings, measure_change, ppmi_distances
from bilm.data.readers import Corpus
from bilm.embedding.embedder import ElmoEmbedder

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "novels-en", "Model that was trained on the unswapped text.")
flags.DEFINE_integer("n_pairs", 20, "Pairs of swapped words.", 1)
flags.DEFINE_integer("n_words", 300, "Words that are not swapped.", 10)
flags.DEFINE_integer("least", 50, "Least number of uses in each half.", 2)
flags.DEFINE_integer("most", 2000, "Largest number of uses in each half.", 2)
flags.DEFINE_integer("sample", 200, "Usages per word and half.", 2)
flags.DEFINE_integer("seed", 0, "Seed of halves, pairs and words.", 0)
flags.DEFINE_string("json", None, "JSON file for the figures.")
HALVES = ("first", "second")
LEVEL = 0.05


def swapped(words, partners):
    """Return a sentence with the words of each pair swapped."""
    return [partners.get(word, word) for word in words]


def choose(halves, draw):
    """Return the pairs of words to swap, and other words of similar frequencies."""
    counts = [Counter(word for words in half for word in words) for half in halves]
    known = [
        word
        for word, n in counts[0].items()
        if re.fullmatch("[a-z]{3,}", word)
        and FLAGS.least <= min(n, counts[1][word])
        and max(n, counts[1][word]) <= FLAGS.most
    ]
    known.sort(key=lambda word: (counts[0][word] + counts[1][word], word))
    places = draw.choice(len(known) // 2, FLAGS.n_pairs, replace=False)
    pairs = [(known[2 * k], known[2 * k + 1]) for k in sorted(places)]
    left = [word for word in known if not any(word in pair for pair in pairs)]
    chosen = draw.choice(len(left), min(FLAGS.n_words, len(left)), replace=False)
    return pairs, [left[k] for k in sorted(chosen)]


def main(argv):
    del argv
    draw = np.random.default_rng(FLAGS.seed)
    sentences = [
        words for path in sorted((common.CLASSICS / "train").iterdir())
        for words in common.sentences(path)
    ]  # fmt: skip
    in_first = draw.permutation(len(sentences)) < len(sentences) // 2
    halves = [
        [words for words, own in zip(sentences, in_first, strict=True) if own == chosen]
        for chosen in (True, False)
    ]
    pairs, others = choose(halves, draw)
    partners = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    halves[1] = [swapped(words, partners) for words in halves[1]]
    words = [*partners, *others]
    with tempfile.TemporaryDirectory() as folder:
        texts = {}
        for name, half in zip(HALVES, halves, strict=True):
            path = Path(folder) / f"{name}.txt"
            path.write_text("".join(f"{' '.join(line)}\n" for line in half), encoding="utf-8")
            texts[name] = [Corpus(path)]
        queries = [parse_query(word, "words") for word in words]
        found = find_usages(texts, queries, sample=FLAGS.sample, seed=FLAGS.seed)
        table = Path(folder) / "usages.parquet"
        file = write_usages(found, ElmoEmbedder(FLAGS.model), table)
        frame = measure_change(file)
        frame["ppmi"] = frame["word"].map(ppmi_distances(file))
    frame["log_ratio"] = frame["log_ratio"].abs()
    figures = {}
    print(f"{len(partners)} swapped words, {len(others)} others, {FLAGS.sample} usages per half")
    print(f"{'measure':<22} {'layer':>5} {'area':>7} {'p < 0.05 of others':>20}")
    for layer, rows in frame.groupby("layer"):
        is_swapped = rows["word"].isin(partners)
        names = list(Settings().measures)
        if layer == frame["layer"].max():
            names += ["ppmi", "log_ratio"]
        for name in names:
            area = roc_auc_score(is_swapped, rows[name].fillna(0))
            p = f"{name}_p"
            alarms = (rows.loc[~is_swapped, p] < LEVEL).mean() if p in rows else float("nan")
            label = layer if p in rows else "-"
            print(f"{name:<22} {label:>5} {area:>7.3f} {alarms:>20.3f}")
            figures[f"{name} {label}"] = {"area": area, "false_alarms": alarms}
    common.write_json(FLAGS.json, figures)


if __name__ == "__main__":
    app.run(main)
