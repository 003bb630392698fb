#!/usr/bin/env python
"""A sentence classifier on ELMo: the mean of a sentence's vectors and a small dense network.

Examples:
  python examples/sentence_classifier.py --train polarity/train.tsv --dev polarity/dev.tsv
  python examples/sentence_classifier.py --word_vectors \\
      --train polarity/train.tsv --dev polarity/dev.tsv

After a header line, each line of the files contains a label, a tab and a tokenized text. The
vectors of ELMo are computed before training and kept in memory. The weights with which their layers
are mixed are trained and printed at the end. With --word_vectors, learned word vectors are
concatenated to ELMo's, as in a tagger; compare the result with --no_elmo.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import running

import bilm
from bilm.data.text import read_lines

if TYPE_CHECKING:  # imported inside functions, so that --help does not load TensorFlow
    import keras
    import tensorflow as tf

    from bilm.layers.scalar_mix import ScalarMix

BATCH_SIZE = 32


class Text(NamedTuple):
    """A labelled text; `vectors`, float32 (layers + 1, T, D), are those of ELMo."""

    words: list[str]
    label: str
    vectors: np.ndarray | None = None


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    running.add_model(flags)
    flags.add_argument("--train", required=True, help="labelled texts for training")
    flags.add_argument("--dev", required=True, help="labelled texts for evaluation")
    running.add_vectors(flags)
    flags.add_argument(
        "--word_vectors", action="store_true", help="concatenate learned word vectors to ELMo's"
    )
    flags.add_argument("--epochs", type=int, default=3, help="passes over the training texts")
    flags.add_argument("--seed", type=int, default=0, help="seed of weights, order and dropout")
    flags.add_argument("--max_sentences", type=int, help="maximum number of texts to read")
    return flags


def read_texts(path: str, limit: int | None) -> list[Text]:
    texts = []
    for number, line in read_lines(path):
        label, tab, text = line.partition("\t")
        if not tab:
            raise bilm.BilmError(
                f"{path}, line {number}: {line!r}, expected a label, a tab, a text"
            )
        if number > 1:
            texts.append(Text(text.split(), label))
    return texts[:limit]


def make_dataset(texts: list[Text], names: list[str], seed: int | None = None) -> tf.data.Dataset:
    """Return batches: padded tokens and vectors; label ids. With a seed, each
    pass has another order."""
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    def generate() -> Iterator[tuple]:
        order = range(len(texts)) if seed is None else rng.permutation(len(texts))
        for words, label, vectors in (texts[i] for i in order):
            inputs = {"tokens": np.array(words, dtype=object)}
            if vectors is not None:
                inputs["layers"] = vectors
            yield inputs, names.index(label)

    inputs = {"tokens": tf.TensorSpec((None,), tf.string)}
    if (found := texts[0].vectors) is not None:
        inputs["layers"] = tf.TensorSpec((len(found), None, found.shape[2]), tf.float32)
    signature = inputs, tf.TensorSpec((), tf.int32)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    n_batches = -(-len(texts) // BATCH_SIZE)
    dataset = dataset.padded_batch(BATCH_SIZE)
    return dataset.apply(tf.data.experimental.assert_cardinality(n_batches)).prefetch(2)


def build(
    train: list[Text], n_labels: int, args: Namespace
) -> tuple[keras.Model, ScalarMix | None]:
    """Return the network, and the layer that mixes the layers of the biLM."""
    import keras
    import tensorflow as tf

    from bilm.layers.scalar_mix import ScalarMix

    tokens = keras.Input((None,), dtype="string", name="tokens")
    inputs, parts, mix = {"tokens": tokens}, [], None
    if args.word_vectors or not args.elmo:
        lookup = keras.layers.StringLookup(mask_token="")
        lookup.adapt(tf.constant([word for text in train for word in text.words]))
        embedding = keras.layers.Embedding(lookup.vocabulary_size(), 100, mask_zero=True)
        parts.append(keras.layers.Dropout(0.3)(embedding(lookup(tokens))))
    if train[0].vectors is not None:
        n_layers, _, dim = train[0].vectors.shape
        layers = inputs["layers"] = keras.Input((n_layers, None, dim), name="layers")
        mix = ScalarMix(l2_coef=1e-3)
        masked = keras.layers.Masking()(mix(layers))  # the vectors of padding are 0
        parts.append(keras.layers.Dropout(0.3)(masked))
    vectors = parts[0] if len(parts) == 1 else keras.layers.Concatenate()(parts)
    pooled = keras.layers.GlobalAveragePooling1D()(vectors)  # uses the mask
    hidden = keras.layers.Dense(128, activation="relu")(pooled)
    logits = keras.layers.Dense(n_labels)(keras.layers.Dropout(0.3)(hidden))
    return keras.Model(inputs, logits), mix


def train_once(
    seed: int, train: list[Text], dev: list[Text], args: Namespace
) -> tuple[float, list[float] | None]:
    """Return the accuracy on dev in percent, and the weights of the layers if ELMo is used."""
    import keras

    keras.utils.set_random_seed(seed)
    names = sorted({text.label for text in train})
    model, mix = build(train, len(names), args)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    history = model.fit(
        make_dataset(train, names, seed),
        validation_data=make_dataset(dev, names),
        epochs=args.epochs, verbose=2, shuffle=False,
    )  # fmt: skip
    accuracy = 100 * history.history["val_accuracy"][-1]
    if mix is None:
        return accuracy, None
    return accuracy, np.array(keras.ops.softmax(mix.weights_before_softmax)).tolist()


def main(args: Namespace) -> None:
    train, dev = (read_texts(path, args.max_sentences) for path in (args.train, args.dev))
    train, dev = running.precomputed(args, train, dev)
    accuracy, weights = train_once(args.seed, train, dev, args)
    if weights is not None:
        print("weights of the layers, token vector first:", np.round(weights, 3).tolist())
    print(f"dev accuracy: {accuracy:.2f}")


if __name__ == "__main__":
    running.run(main, define_flags())
