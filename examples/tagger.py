#!/usr/bin/env python
"""A sequence tagger with and without ELMo: parts of speech or named entities.

Examples:
  python examples/tagger.py --train pos/train.tsv --dev pos/dev.tsv
  python examples/tagger.py --model elmo --train pos/train.tsv --dev pos/dev.tsv
  python examples/tagger.py --no_elmo --train ner/train.tsv --dev ner/dev.tsv --seeds 0,1,2
  python examples/tagger.py --precision int8 --train pos/train.tsv --dev pos/dev.tsv

Each line of the files contains a token, a tab and a tag; a blank line ends a sentence, and further
columns are ignored. Tags in IOB2 (B-place, I-place, O) are scored by the F1 of whole entities,
others by accuracy. The taggers with and without ELMo differ only in its vectors: they are
concatenated to the learned word vectors, and with --elmo_output also to the LSTM's output.

With --precision, all vectors are computed before training, in this precision, and kept in memory.
To compare precisions, pass --precision float32 and --precision int8 with the same seeds.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import running
from absl import logging

import bilm
from bilm.data.text import read_lines

if TYPE_CHECKING:  # imported inside functions, so that --help does not load TensorFlow
    import keras

PADDING_TAG = ""


class Sentence(NamedTuple):
    """A tagged sentence; `vectors`, float32 (layers + 1, T, D), if computed before training."""

    words: list[str]
    tags: list[str]
    vectors: np.ndarray | None = None


def define_flags() -> ArgumentParser:
    flags = running.parser(__doc__)
    running.add_model(flags)
    flags.add_argument("--train", required=True, help="tagged sentences for training")
    flags.add_argument("--dev", required=True, help="tagged sentences for evaluation")
    running.add_vectors(flags)
    flags.add_argument(
        "--elmo_output", action="store_true", help="also add ELMo to the output of the LSTM"
    )
    flags.add_argument("--seeds", default="0", help="one tagger is trained per seed, such as 0,1,2")
    flags.add_argument("--epochs", type=int, default=5, help="passes over the training sentences")
    flags.add_argument("--units", type=int, default=100, help="LSTM units per direction")
    flags.add_argument("--max_sentences", type=int, help="maximum number of sentences to read")
    return flags


def read_sentences(path: str, limit: int | None) -> list[Sentence]:
    sentences, words, tags = [], [], []
    for number, line in [*read_lines(path), (0, "")]:
        if line:
            columns = line.split("\t")
            if len(columns) < 2:
                raise bilm.BilmError(
                    f"{path}, line {number}: {line!r}, expected a token, a tab, a tag"
                )
            words.append(columns[0])
            tags.append(columns[1])
        elif words:
            sentences.append(Sentence(words, tags))
            words, tags = [], []
    return sentences[:limit]


def batches(sentences: list[Sentence], tag_ids: dict[str, int], size: int, shuffle_seed=None):
    """Return batches of sentences of similar length: tokens and vectors, tag ids, weights."""
    import tensorflow as tf

    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i].words))
    groups = [order[i : i + size] for i in range(0, len(order), size)]

    def generate() -> Iterator[tuple]:
        for group in groups:
            width = max(len(sentences[i].words) for i in group)
            words = [sentences[i].words + [""] * (width - len(sentences[i].words)) for i in group]
            inputs = {"tokens": np.array(words, dtype=object)}
            if (found := sentences[group[0]].vectors) is not None:
                shape = len(group), len(found), width, found.shape[2]
                inputs["layers"] = np.zeros(shape, np.float32)
                for row, i in zip(inputs["layers"], group, strict=True):
                    row[:, : len(sentences[i].words)] = sentences[i].vectors
            tags = np.zeros((len(group), width), np.int32)
            counts = np.zeros((len(group), width), np.float32)
            for row, i in enumerate(group):
                ids = [tag_ids.get(tag, 0) for tag in sentences[i].tags]
                tags[row, : len(ids)], counts[row, : len(ids)] = ids, 1.0
            yield inputs, tags, counts

    strings, *matrix = [
        tf.TensorSpec((None, None), dtype) for dtype in (tf.string, tf.int32, tf.float32)
    ]
    signature = {"tokens": strings}
    if (found := sentences[0].vectors) is not None:
        shape = None, len(found), None, found.shape[2]
        signature["layers"] = tf.TensorSpec(shape, tf.float32)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(signature, *matrix))
    if shuffle_seed is not None:
        dataset = dataset.cache().shuffle(len(groups), seed=shuffle_seed)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(groups))).prefetch(2)


def build(train: list[Sentence], n_tags: int, args: Namespace) -> keras.Model:
    import keras
    import tensorflow as tf

    from bilm.layers.scalar_mix import ScalarMix

    lookup = keras.layers.StringLookup(mask_token="")
    lookup.adapt(tf.constant([word for sentence in train for word in sentence.words]))
    tokens = keras.Input((None,), dtype="string", name="tokens")
    inputs = {"tokens": tokens}
    x = keras.layers.Embedding(lookup.vocabulary_size(), 100, mask_zero=True)(lookup(tokens))
    elmo = []
    n_representations = 2 if args.elmo_output else 1
    if train[0].vectors is not None:
        n_layers, _, dim = train[0].vectors.shape
        layers = inputs["layers"] = keras.Input((n_layers, None, dim), name="layers")
        for _ in range(n_representations):
            mix = ScalarMix(l2_coef=1e-3)(layers)
            elmo.append(keras.layers.Dropout(0.3)(mix))
        x = keras.layers.Concatenate()([x, elmo[0]])
    elif args.elmo:
        layer = bilm.Elmo(
            args.model,
            args.weights,
            n_representations=n_representations,
            l2_coef=1e-3,
            dropout=0.3,
        )
        elmo = layer(tokens) if args.elmo_output else [layer(tokens)]
        x = keras.layers.Concatenate()([x, elmo[0]])
    x = keras.layers.Dropout(0.3)(x)
    x = keras.layers.Bidirectional(keras.layers.LSTM(args.units, return_sequences=True))(x)
    if args.elmo_output:
        x = keras.layers.Concatenate()([x, elmo[1]])
    x = keras.layers.Dropout(0.3)(x)
    return keras.Model(inputs, keras.layers.Dense(n_tags)(x))


def entities(tags: list[str]) -> set[tuple[int, int, str]]:
    """Return (start, end, type) of each entity in IOB2 tags."""
    found, start = set(), None
    for i, tag in enumerate([*tags, "O"]):
        if start is not None and tag != f"I-{tags[start][2:]}":
            found.add((start, i, tags[start][2:]))
            start = None
        if tag.startswith("B-") or (tag.startswith("I-") and start is None):
            start = i
    return found


def evaluate(model: keras.Model, dev: list[Sentence], names: list[str]) -> tuple[str, float]:
    """Return the F1 of entities for IOB2 tags, else the accuracy of tokens, in percent."""
    tag_ids = {name: i for i, name in enumerate(names)}
    order = sorted(range(len(dev)), key=lambda i: len(dev[i].words))
    predicted = []
    for inputs, _, _ in batches(dev, tag_ids, 64):
        predicted.extend(np.argmax(model(inputs), axis=-1))
    pairs = [
        (dev[i].tags, [names[k] for k in row[: len(dev[i].tags)]])
        for i, row in zip(order, predicted, strict=True)
    ]
    if not any(name.startswith("B-") for name in names):
        right = np.concatenate([np.equal(golds, founds) for golds, founds in pairs])
        return "accuracy", 100 * float(right.mean())
    gold = {(i, *e) for i, (tags, _) in enumerate(pairs) for e in entities(tags)}
    found = {(i, *e) for i, (_, tags) in enumerate(pairs) for e in entities(tags)}
    return "F1", 200 * len(gold & found) / max(1, len(gold) + len(found))


def train_once(
    seed: int, train: list[Sentence], dev: list[Sentence], args: Namespace
) -> tuple[str, float]:
    import keras

    keras.utils.set_random_seed(seed)
    names = [PADDING_TAG, *sorted({tag for sentence in train for tag in sentence.tags})]
    tag_ids = {name: i for i, name in enumerate(names)}
    model = build(train, len(names), args)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(2e-3, clipnorm=5.0), loss)
    data = batches(train, tag_ids, 32, shuffle_seed=seed)
    for epoch in range(args.epochs):
        history = model.fit(data, verbose=0, shuffle=False)
        metric, score = evaluate(model, dev, names)
        loss_now = history.history["loss"][0]
        logging.info(
            "seed %d, epoch %d: loss %.4f, dev %s %.2f", seed, epoch + 1, loss_now, metric, score
        )
    return metric, score


def main(args: Namespace) -> None:
    train, dev = (read_sentences(path, args.max_sentences) for path in (args.train, args.dev))
    train, dev = running.precomputed(args, train, dev)
    scores = []
    for seed in args.seeds.split(","):
        metric, score = train_once(int(seed), train, dev, args)
        scores.append(score)
    kind = "with ELMo" if args.elmo else "without ELMo"
    listed = ", ".join(f"{score:.2f}" for score in scores)
    print(f"dev {metric} {kind}: mean {statistics.mean(scores):.2f} ({listed})")


if __name__ == "__main__":
    running.run(main, define_flags())
