#!/usr/bin/env python
"""How well the surprisal of a model, of trigrams and of both predicts reading times.

Example:
  bilm vocab --input 'corpus/*.txt' --output vocab.txt --ngrams counts.hdf5
  python benchmarks/reading_times.py naturalstories/naturalstories_RTS --ngrams counts.hdf5

The folder has two tables with tabs, as Natural Stories (github.com/languageMIT/naturalstories):
all_stories.tok with word (and its punctuation), zone (its number in the story) and item (the story)
and processed_RTs.tsv with item, zone and RT (milliseconds) of each reader.

Linear regressions predict the log reading time of a word, its mean over readers, by length and log
frequency of the word and of the one before it, without and with their surprisal. A gain is the mean
difference of the log-likelihoods in ten folds of sentences, in 1e-3 nats per word; its interval
(95 %) is of bootstrap samples of sentences. The surprisal of a word is the sum over its parts, such
as punctuation; its frequency is of the longest part. Words with an unknown part, and the words
after them, are left out. Requires the extras analysis and spacy.
"""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
from absl import app, flags

import bilm
from bilm.data.tokenization import tokenizer
from bilm.storage.hdf5 import numbers, open_hdf5, strings
from bilm.studies.reading import load_trigrams, surprisal_table
from bilm.support.model_files import NGRAM_COUNTS

FLAGS = flags.FLAGS
flags.DEFINE_string("model", "novels-en", "Model.")
flags.DEFINE_string("ngrams", None, "Counts of bilm vocab --ngrams.", required=True)
flags.DEFINE_string("tokenize", "en", "Language of spaCy's rules; empty to split at blanks.")
FORM = {"sep": "\t", "quoting": csv.QUOTE_NONE, "keep_default_na": False}
N_FOLDS, N_SAMPLES = 10, 10_000
END = r"[.!?]['\"’”)]*$"  # of the last word of a sentence


def read_words(folder):
    """Return the words in order, with their log reading time and the number of their sentence."""
    words = pd.read_csv(folder / "all_stories.tok", **FORM).sort_values(["item", "zone"])
    times = pd.read_csv(folder / "processed_RTs.tsv", **FORM).set_index(["item", "zone"])["RT"]
    words = words.join(np.log(times).groupby(level=[0, 1]).mean(), on=["item", "zone"])
    is_last = words["word"].str.contains(END) | (words["item"] != words["item"].shift(-1))
    return words.assign(sentence=is_last.shift(fill_value=False).cumsum()).reset_index(drop=True)


def with_predictors(words):
    """Return the words with length, log frequency, and surprisal in bits."""
    with open_hdf5(FLAGS.ngrams) as file:
        counts, vocabulary = numbers(file, NGRAM_COUNTS)[...], strings(file, "vocabulary")
    frequency = np.log(1 + np.bincount(counts[:, 2], counts[:, 3], len(vocabulary)))
    frequency_of = dict(zip(vocabulary, frequency, strict=True))

    parts = words["word"].map(tokenizer(FLAGS.tokenize or None))
    sentences = parts.groupby(words["sentence"]).sum()
    scorer, trigrams = bilm.load_scorer(FLAGS.model), load_trigrams(FLAGS.ngrams)
    table = pd.DataFrame(surprisal_table(scorer, sentences, trigrams=trigrams))
    of_word = table.groupby(np.repeat(words.index, parts.map(len)))
    words["length"] = words["word"].str.len()
    words["frequency"] = [frequency_of.get(max(of_one, key=len), 0) for of_one in parts]
    words["known"] = of_word[["known", "trigram_known"]].all().all(axis=1)
    return words.assign(model=of_word["forward"].sum(), trigrams=of_word["trigram"].sum())


def log_likelihoods(x, y, fold_of):
    """Return the log-likelihood of each y (N,) by the regression on x (N, P) in the other folds."""
    x = np.column_stack([np.ones(len(x)), x])
    logs = np.empty(len(y))
    for fold in range(N_FOLDS):
        inside = fold_of == fold
        weights, *_ = np.linalg.lstsq(x[~inside], y[~inside], rcond=None)
        squares = (y - x @ weights) ** 2
        variance = squares[~inside].mean()
        logs[inside] = -(np.log(2 * np.pi * variance) + squares[inside] / variance) / 2
    return logs


def main(argv):
    words = with_predictors(read_words(Path(argv[1])))
    before = words.shift().where(words["item"] == words["item"].shift()).add_suffix("_before")
    used = words.join(before).dropna()
    used = used[used["known"] & used["known_before"].astype(bool)]
    sentence_of, sentences = pd.factorize(used["sentence"])
    draw = np.random.default_rng(0)
    fold_of = draw.permutation(len(sentences))[sentence_of] % N_FOLDS

    logs = {}
    for added in ((), ("model",), ("trigrams",), ("model", "trigrams")):
        columns = [
            name + end for name in ("length", "frequency", *added) for end in ("", "_before")
        ]
        x = used[columns].to_numpy(float)
        logs[" and ".join(added)] = log_likelihoods(x, used["RT"].to_numpy(), fold_of)
    gains = 1000 * pd.DataFrame(logs).sub(logs[""], axis=0).drop(columns="")
    gains["trigrams less model"] = gains["trigrams"] - gains["model"]

    drawn = draw.multinomial(len(sentences), np.full(len(sentences), 1 / len(sentences)), N_SAMPLES)
    samples = drawn @ gains.groupby(sentence_of).sum()
    samples = samples.div(drawn @ np.bincount(sentence_of), axis=0)
    print(f"{len(used):,} of {len(words):,} words, {len(sentences):,} sentences")
    print(samples.quantile([0.025, 0.975]).T.assign(gain=gains.mean()).round(1))


if __name__ == "__main__":
    app.run(main)
