#!/usr/bin/env python
"""A sentence classifier on ELMo: the mean of a sentence's vectors, and one dense layer.

Example:
  python examples/sentence_classifier.py --options_file elmo/options.json \\
      --weight_file elmo/weights.hdf5 --train polarity/train.tsv --dev polarity/dev.tsv

The files have a header line and then a label and a tokenized text a line, separated by a tab.
The biLM is not trained; the weights of its layers are, and what they end at is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import bilm
from bilm.commands import command, flag_kinds
from bilm.commands.command import FLAGS, flags
from bilm.data.text import read_lines

if TYPE_CHECKING:  # imported where they are used: --help does not wait for TensorFlow
    import keras
    import tensorflow as tf

flag_kinds.define_path("options_file", None, "The biLM's options, or what stands for both files.")
flag_kinds.define_path("weight_file", None, "The biLM's weights.")
flag_kinds.define_path("train", None, "Labelled texts to learn from.")
flag_kinds.define_path("dev", None, "Labelled texts to measure on.")
flags.DEFINE_integer("epochs", 3, "Passes over the training texts.", 1)
flags.DEFINE_integer("seed", 0, "Keys weights, order and dropout.", 0)
flags.DEFINE_integer("max_sentences", None, "Read no more texts than this.", 1)


def read_texts(path: str) -> tuple[list[str], list[list[str]]]:
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
    return labels[: FLAGS.max_sentences], texts[: FLAGS.max_sentences]


def make_dataset(labels: list[int], texts: list[list[str]], shuffle: bool) -> tf.data.Dataset:
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(texts), labels))
    if shuffle:
        rows = rows.shuffle(len(labels), seed=FLAGS.seed)
    return rows.ragged_batch(32).map(lambda text, label: (text.to_tensor(""), label)).prefetch(2)


def build(n_labels: int) -> tuple[keras.Model, bilm.Elmo]:
    import keras

    tokens = keras.Input((None,), dtype="string")
    elmo = bilm.Elmo(FLAGS.options_file, FLAGS.weight_file, l2_coef=1e-3, dropout=0.3)
    pooled = keras.layers.GlobalAveragePooling1D()(elmo(tokens))  # heeds the mask
    hidden = keras.layers.Dense(128, activation="relu")(pooled)
    logits = keras.layers.Dense(n_labels)(keras.layers.Dropout(0.3)(hidden))
    return keras.Model(tokens, logits), elmo


def main() -> None:
    import keras
    import numpy as np

    keras.utils.set_random_seed(FLAGS.seed)
    train_labels, train_texts = read_texts(FLAGS.train)
    dev_labels, dev_texts = read_texts(FLAGS.dev)
    names = sorted(set(train_labels))
    train = make_dataset([names.index(x) for x in train_labels], train_texts, shuffle=True)
    dev = make_dataset([names.index(x) for x in dev_labels], dev_texts, shuffle=False)
    model, elmo = build(len(names))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    history = model.fit(train, validation_data=dev, epochs=FLAGS.epochs, verbose=2, shuffle=False)
    weights = keras.ops.softmax(elmo.mixes[0].weights_before_softmax)
    print("weights of the layers, token vector first:", np.round(weights, 3).tolist())
    print(f"dev accuracy: {100 * history.history['val_accuracy'][-1]:.2f}")


if __name__ == "__main__":
    command.run(main, required=["options_file", "train", "dev"])
