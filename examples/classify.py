#!/usr/bin/env python
"""A text classifier on ELMo in scikit-learn, against a bag of words, with cross-validation.

Example:
  python examples/classify.py --train polarity/train.tsv

After a header line, each line of the file contains a label, a tab and a tokenized text. Both
classifiers are logistic regressions: one on the mean of ELMo's vectors, the other on counts
of words and word pairs. The regularization strength of each is chosen within each fold. Requires
scikit-learn: pip install '.[sklearn]'.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import running

import bilm
from bilm.data.text import read_lines

# C of the logistic regressions: a smaller value regularizes more strongly.
ELMO_STRENGTHS, WORD_STRENGTHS = (0.001, 0.01), (0.1, 1.0)


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    running.add_model(flags)
    flags.add_argument("--train", required=True, help="labelled texts")
    flags.add_argument(
        "--layers", default="average", help="all, top, average, or layer numbers such as 0,2"
    )
    flags.add_argument("--folds", type=int, default=5, help="number of folds")
    flags.add_argument("--seed", type=int, default=0, help="seed of the folds")
    flags.add_argument("--max_texts", type=int, help="maximum number of texts to read")
    return flags


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
    # The vectorizer learns nothing from the texts, so one pass serves all folds.
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
    running.run(main, define_flags())
