#!/usr/bin/env python
"""A text classifier on ELMo in scikit-learn, against a bag of words, with cross-validation.

Example:
  python examples/classify.py --train polarity/train.tsv

The file has a header line and then a label and a tokenized text a line, separated by a tab. Both
classifiers are logistic regressions: one on the mean of ELMo's vectors, one on counts of words and
pairs of words. How strongly each is regularized is chosen inside of each fold. It needs
scikit-learn: pip install '.[sklearn]'.
"""

from __future__ import annotations

import sys
from argparse import Namespace

import bilm
from bilm.commands import command
from bilm.commands.flags import Flags
from bilm.data.text import read_lines

# C of the logistic regressions, the less the more regularized.
ELMO_STRENGTHS, WORD_STRENGTHS = (0.001, 0.01), (0.1, 1.0)


def define_flags(flags: Flags) -> None:
    flags.group("flags")
    flags.path("model", "A stored biLM.", "MODEL", default="novels-en", old=["options_file"])
    flags.path("weights", "HDF5 weights, where MODEL is options.json.", old=["weight_file"])
    flags.path("train", "Labelled texts.", required=True)
    flags.text(
        "layers", "all, top, average, or numbers with commas: 0,2.", "LAYERS", default="average"
    )
    flags.integer("folds", "Parts of which each is measured on once.", 2, default=5)
    flags.integer("seed", "Determines the parts.", 0, default=0)
    flags.integer("max_texts", "Read no more texts than this.", 4)


def read_texts(path: str, limit: int | None) -> tuple[list[str], list[str]]:
    labels, texts = [], []
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            raise bilm.BilmError(
                f"{path}, line {number}: {line!r}, expected a label, a tab, a text"
            )
        if number > 1:
            labels.append(label)
            texts.append(text)
    return labels[:limit], texts[:limit]


def main(args: Namespace) -> None:
    vectorizer = bilm.ElmoVectorizer(args.model, args.weights, layers=args.layers)
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels, texts = read_texts(args.train, args.max_texts)
    folds = StratifiedKFold(args.folds, shuffle=True, random_state=args.seed)
    # Nothing is learned from the texts here, so that they are embedded once for all folds.
    vectors = vectorizer.fit_transform(texts)
    classifiers = {
        f"ELMo ({vectors.shape[1]} features)": (StandardScaler(), vectors, ELMO_STRENGTHS),
        "bag of words and pairs": (
            CountVectorizer(ngram_range=(1, 2), binary=True),
            texts,
            WORD_STRENGTHS,
        ),
    }
    for name, (transformer, features, strengths) in classifiers.items():
        pipeline = make_pipeline(transformer, LogisticRegression(max_iter=1000))
        search = GridSearchCV(pipeline, {"logisticregression__C": strengths}, cv=3)
        scores = 100 * cross_val_score(search, features, labels, cv=folds)
        parts = ", ".join(f"{score:.1f}" for score in scores)
        print(f"accuracy, {name}: mean {scores.mean():.2f} ({parts})", flush=True)


if __name__ == "__main__":
    command.run_script(sys.modules[__name__])
