#!/usr/bin/env python
"""Fill gaps in small texts with trigrams, a biLM, and a biLM and its memory, for each of a folder.

The folder contains tokenized texts NAME.txt, one sentence per line (every tenth is for validation,
and every tenth word of it a gap), or gaps_NAME_train.tsv and gaps_NAME_valid.json of SIGTYP 2024,
task 4a (github.com/sigtyp/ST2024). Scores: mean of accuracy at 1 and at 3, averaged over sentences;
accuracy for 200 words that lack 1 to 3 letters. Writes table.md and scores.png (extra analysis),
and calibration.md and .png: how often the best words are right, by tenths of their probability.
"""

import csv
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import common
from absl import app, flags

import bilm
from bilm.storage.stored_model import open_model
from bilm.studies.gaps import MASK, Filler, Memory, pattern

FLAGS = flags.FLAGS
flags.DEFINE_string("output", "small_texts", "Folder of the results.")
flags.DEFINE_integer("seed", 0, "Seed of the runs.")
TOKEN = re.compile(r"\[MASK\]|\w[\w\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u200d·]*['’]?|[^\w\s]")
SYSTEMS = "most frequent", "trigrams", "biLM", "biLM and memory"


def texts_of(folder, name):
    """Return the training sentences, and pairs of a sentence with gaps and the lost words."""
    if (text := folder / f"{name}.txt").exists():
        lines, gaps = common.sentences(text), []
        for words in lines[::10]:
            lost = random.Random(0).sample(range(len(words)), math.ceil(len(words) / 10))
            masked = [MASK if i in lost else word for i, word in enumerate(words)]
            gaps.append((masked, [words[i] for i in sorted(lost)]))
        return [words for i, words in enumerate(lines) if i % 10], gaps
    split = str.split if name in ("got", "san", "ohu", "chu", "cop") else TOKEN.findall
    with open(folder / f"gaps_{name}_train.tsv", encoding="utf-8") as file:
        train = [split(row[1]) for row in csv.reader(file, "excel-tab", quotechar="^")][1:]
    gaps = []
    for row in json.loads((folder / f"gaps_{name}_valid.json").read_text("utf-8")):
        words = split(row["masked"].replace(MASK, f" {MASK} "))
        lost = [gap["masked_token"] for gap in row["masked_tokens"]]
        if lost and words.count(MASK) == len(lost):
            gaps.append((words, lost))
    return [words for words in train if words], gaps


class Trigrams:
    """Interpolated trigrams with absolute discounting of 0.75."""

    def __init__(self, sentences):
        self.followers = defaultdict(Counter)
        for words in sentences:
            text = ["<S>", "<S>", *words, "</S>"]
            for i, n in product(range(2, len(text)), range(3)):
                self.followers[tuple(text[i - n : i])][text[i]] += 1
        self.totals = {context: counts.total() for context, counts in self.followers.items()}
        self.words = [word for word, _ in self.followers[()].most_common() if word != "</S>"]

    def _p(self, context, word):
        shorter = self._p(context[1:], word) if context else 1 / (len(self.words) + 2)
        if not (counts := self.followers.get(context)):
            return shorter
        rest = 0.75 * len(counts) * shorter
        return (max(counts[word] - 0.75, 0) + rest) / self.totals[context]

    def best(self, words, i):
        """Return the three words with which the sentence is the most probable."""
        text = ["<S>", "<S>", *words, "</S>"]
        places = [i + 2, *(j for j in (i + 3, i + 4) if j < len(text) and not pattern(text[j]))]

        def log(word):
            text[i + 2] = word
            return sum(math.log(self._p((text[j - 2], text[j - 1]), text[j])) for j in places)

        return sorted(filter(pattern(words[i]).fullmatch, self.words), key=log, reverse=True)[:3]


def damaged(gaps):
    """Return 200 sentences with a word that lacks 1 to 3 letters, their only gap, and the word."""
    draw, found = random.Random(0), []
    while len(found) < 200:
        masked, lost = draw.choice(gaps)
        rest = iter(lost)
        words = [next(rest) if word == MASK else word for word in masked]
        i, n = draw.randrange(len(words)), draw.randint(1, 3)
        if words[i].isalpha() and len(words[i]) > 3:
            at = draw.randrange(len(words[i]) - n + 1)
            token = f"{words[i][:at]}[{'.' * n}]{words[i][at + n :]}"
            found.append(([*words[:i], token, *words[i + 1 :]], [words[i]]))
    return found


def trained(train, out):
    if not (out / "minutes").exists():
        out.mkdir(parents=True, exist_ok=True)
        for name, is_heldout in (("train", False), ("heldout", True)):
            text = (" ".join(s) for i, s in enumerate(train) if (i % 20 == 19) == is_heldout)
            (out / f"{name}.txt").write_text("\n".join(text), "utf-8")
        started, texts = time.time(), f"--input {out}/train.txt --heldout {out}/heldout.txt"
        for command in (
            f"vocab --input {out}/train.txt --output {out}/vocab.txt --min_count 1",
            f"train {texts} --vocab {out}/vocab.txt --output {out}/run --options auto "
            f"--seed {FLAGS.seed}",
            f"memory {texts} --model {out}/run --output {out}/memory.hdf5",
        ):
            common.bilm(*command.split())
        (out / "minutes").write_text(str((time.time() - started) / 60))
    scorer = bilm.load_scorer(out / "run")
    memory = Memory.load(out / "memory.hdf5", open_model(out / "run"), scorer.words)
    minutes = float((out / "minutes").read_text())
    return Filler(scorer), Filler(scorer, memory=memory), minutes


def answers_of(filler, gaps):
    """Return the probability of each best word, and whether it is right."""
    answers = []
    for words, lost in gaps:
        for gap, word in zip(filler.fill(words, 1), lost, strict=True):
            answers += ((p, best == word) for best, p in gap.candidates)
    return answers


def measured(folder, name, out):
    train, gaps = texts_of(folder, name)
    (*fillers, minutes), trigrams = trained(train, out), Trigrams(train)
    fills = [lambda s, f=f: [f(s, i) for i, word in enumerate(s) if pattern(word)]
             for f in (lambda words, i: trigrams.words[:3], trigrams.best)]  # fmt: skip
    fills += [lambda s, f=f: [[w for w, _ in g.candidates] for g in f.fill(s, 3)] for f in fillers]
    found, letters = {"tokens": sum(map(len, train))}, damaged(gaps)
    for system, fill in zip(SYSTEMS, fills, strict=True):
        filled = [(lost, fill(words)) for words, lost in gaps]
        hits = ([(w in b[:1]) + (w in b) for w, b in zip(*each, strict=True)] for each in filled)
        found[system] = sum(sum(own) / 2 / len(own) for own in hits) / len(gaps)
    for i in (1, 2, 3):
        right = sum(fills[i](words)[0][:1] == lost for words, lost in letters)
        found[f"letters: {SYSTEMS[i]}"] = right / len(letters)
    return found | {"minutes": minutes}, answers_of(fillers[1], gaps + letters)


def main(argv):
    import pandas as pd

    folder, out, found, answers = Path(argv[1]), Path(FLAGS.output), {}, []
    names = {path.stem for path in folder.glob("*.txt")}
    for name in sorted(names | {p.stem.split("_")[1] for p in folder.glob("gaps_*_train.tsv")}):
        found[name], answers_of_text = measured(folder, name, out / name)
        answers += answers_of_text
        rows = ([n, *(f"{v:,.{3 * (v < 1)}f}" for v in f.values())] for n, f in found.items())
        (out / "table.md").write_text(common.markdown(["text", *found[name]], rows), "utf-8")
    print((out / "table.md").read_text("utf-8"))
    axes = pd.DataFrame(found).T[list(SYSTEMS)].plot.bar(rot=0, ylabel="accuracy at 1 and 3")
    axes.figure.savefig(out / "scores.png", dpi=150)

    table = pd.DataFrame(answers, columns=["probability", "right"])
    tenths = table.groupby(table["probability"].round(1).rename("about"))
    means = tenths.mean().assign(answers=tenths.size())
    rows = []
    for tenth, probability, right, n in means.itertuples():
        rows.append([f"{tenth:.1f}", f"{probability:.3f}", f"{right:.3f}", f"{n}"])
    (out / "calibration.md").write_text(common.markdown(["about", *means], rows), "utf-8")
    print((out / "calibration.md").read_text("utf-8"))
    label = "share of right answers"
    axes = means.plot("probability", "right", style="o-", legend=False, ylabel=label)
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.figure.savefig(out / "calibration.png", dpi=150)


if __name__ == "__main__":
    app.run(main)
