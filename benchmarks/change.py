#!/usr/bin/env python
"""Find words that were swapped in one half of a corpus, with the measures of `bilm change`.

The sentences of classics_en are divided into two random halves. In the second one, the words of 20
pairs of similar frequency are swapped. The benchmark prints, for each measure, the area under the
ROC curve (1: all swapped words rank before the others), and for the words that were not swapped the
mean, the share with p < 0.05 and the share of intervals that contain 0.

Example:
  python benchmarks/change.py --sample 6
"""

import re
import tempfile
from collections import Counter
from pathlib import Path

import common
import numpy as np
from absl import app, flags
from sklearn.metrics import roc_auc_score

from bilm.studies.usages import Settings, collect_usages, measure_change

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "novels-en", "Model that was trained on the unswapped text.")
flags.DEFINE_integer("sample", 200, "Usages per word and half.", 2)
flags.DEFINE_list("layers", [], "Numbers of layers; the mean of the LSTM layers if empty.")
HALVES = ("first", "second")
N_PAIRS, N_OTHERS = 20, 300  # pairs of swapped words, and words that are not swapped
LEAST, MOST = 50, 2000  # usages of a chosen word in each half


def choose(halves, draw):
    """Return the partner of each swapped word, and other words of similar frequencies."""
    counts = [Counter(word for words in half for word in words) for half in halves]
    known = [
        word
        for word, n in counts[0].items()
        if re.fullmatch("[a-z]{3,}", word)
        and min(n, counts[1][word]) >= LEAST
        and max(n, counts[1][word]) <= MOST
    ]
    known.sort(key=lambda word: (counts[0][word] + counts[1][word], word))
    places = draw.choice(len(known) // 2, N_PAIRS, replace=False)
    pairs = [(known[2 * k], known[2 * k + 1]) for k in sorted(places)]
    partners = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    left = [word for word in known if word not in partners]
    return partners, draw.choice(left, min(N_OTHERS, len(left)), replace=False).tolist()


def main(_):
    draw = np.random.default_rng(0)
    paths = sorted((common.CLASSICS / "train").iterdir())
    lines = [words for path in paths for words in common.sentences(path)]
    in_first = draw.permutation(len(lines)) < len(lines) // 2
    halves = [
        [words for words, own in zip(lines, in_first, strict=True) if own == chosen]
        for chosen in (True, False)
    ]
    partners, others = choose(halves, draw)
    halves[1] = [[partners.get(word, word) for word in words] for words in halves[1]]
    with tempfile.TemporaryDirectory() as folder:
        texts = {name: Path(folder) / f"{name}.txt" for name in HALVES}
        for path, half in zip(texts.values(), halves, strict=True):
            path.write_text("".join(f"{' '.join(words)}\n" for words in half), encoding="utf-8")
        usages = collect_usages(FLAGS.model, [*partners, *others], texts, sample=FLAGS.sample)
    frame = measure_change(usages, Settings(layers=tuple(map(int, FLAGS.layers)) or None))
    frame["frequency"] = frame["log_ratio"].abs()
    rows = []
    for layer, own in frame.groupby("layer"):
        is_swapped = own["word"].isin(partners)
        rest = own[~is_swapped]
        for name in (*Settings().measures, "ppmi", "frequency"):
            cells = [f"{roc_auc_score(is_swapped, own[name]):.3f}", f"{rest[name].mean():.4f}"]
            if f"{name}_p" in own:
                low = rest[f"{name}_low"].dropna()  # of words with enough usages
                inside = (low <= 0) & (rest.loc[low.index, f"{name}_high"] >= 0)
                shares = (rest[f"{name}_p"] < 0.05).mean(), inside.mean()
                cells += [f"{100 * share:.1f} %" for share in shares]
            rows.append((name, str(layer), *cells, *[""] * (4 - len(cells))))
    head = ("measure", "layer", "area", "mean of others", "false alarms", "intervals with 0")
    print(common.markdown(head, rows))


if __name__ == "__main__":
    app.run(main)
