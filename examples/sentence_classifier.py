#!/usr/bin/env python
"""A sentence classifier on ELMo: the mean of a sentence's vectors and a small dense network.

Example:
  python examples/sentence_classifier.py --train polarity/train.tsv --dev polarity/dev.tsv

After a header line, each line of the files contains a label, a tab and a tokenized text. The biLM
is frozen. The weights with which its layers are mixed are trained and printed at the end.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

import running

import bilm
from bilm.data.text import read_lines

if TYPE_CHECKING:  # imported inside functions, so that --help does not load TensorFlow
    import keras
    import tensorflow as tf


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    running.add_model(flags)
    flags.add_argument("--train", required=True, help="labelled texts for training")
    flags.add_argument("--dev", required=True, help="labelled texts for evaluation")
    flags.add_argument("--epochs", type=int, default=3, help="passes over the training texts")
    flags.add_argument("--seed", type=int, default=0, help="seed of weights, order and dropout")
    flags.add_argument("--max_sentences", type=int, help="maximum number of texts to read")
    return flags


def read_texts(path: str, limit: int | None) -> tuple[list[str], list[list[str]]]:
    labels, texts = [], []
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            raise bilm.BilmError(
                f"{path}, line {number}: {line!r}, expected a label, a tab, a text"
            )
        if number > 1:
            labels.append(label)
            texts.append(text.split())
    return labels[:limit], texts[:limit]


def make_dataset(
    labels: list[int], texts: list[list[str]], seed: int | None = None
) -> tf.data.Dataset:
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(texts), labels))
    if seed is not None:
        rows = rows.shuffle(len(labels), seed=seed)
    return rows.ragged_batch(32).map(lambda text, label: (text.to_tensor(""), label)).prefetch(2)


def build(n_labels: int, args: Namespace) -> tuple[keras.Model, bilm.Elmo]:
    import keras

    tokens = keras.Input((None,), dtype="string")
    elmo = bilm.Elmo(args.model, args.weights, l2_coef=1e-3, dropout=0.3)
    pooled = keras.layers.GlobalAveragePooling1D()(elmo(tokens))  # uses the mask
    hidden = keras.layers.Dense(128, activation="relu")(pooled)
    logits = keras.layers.Dense(n_labels)(keras.layers.Dropout(0.3)(hidden))
    return keras.Model(tokens, logits), elmo


def main(args: Namespace) -> None:
    import keras
    import numpy as np

    keras.utils.set_random_seed(args.seed)
    train_labels, train_texts = read_texts(args.train, args.max_sentences)
    dev_labels, dev_texts = read_texts(args.dev, args.max_sentences)
    names = sorted(set(train_labels))
    train = make_dataset([names.index(x) for x in train_labels], train_texts, args.seed)
    dev = make_dataset([names.index(x) for x in dev_labels], dev_texts)
    model, elmo = build(len(names), args)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    history = model.fit(train, validation_data=dev, epochs=args.epochs, verbose=2, shuffle=False)
    weights = keras.ops.softmax(elmo.mixes[0].weights_before_softmax)
    print("weights of the layers, token vector first:", np.round(weights, 3).tolist())
    print(f"dev accuracy: {100 * history.history['val_accuracy'][-1]:.2f}")


if __name__ == "__main__":
    running.run(main, define_flags())
