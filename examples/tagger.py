#!/usr/bin/env python
"""A sequence tagger with and without ELMo: parts of speech or named entities.

Examples:
  python examples/tagger.py --train pos/train.tsv --dev pos/dev.tsv
  python examples/tagger.py --model elmo --train got_train.conllu --dev got_valid.conllu
  python examples/tagger.py --no_elmo --train ner/train.tsv --dev ner/dev.tsv --seeds 0,1,2
  python examples/tagger.py --precision int8 --train pos/train.tsv --dev pos/dev.tsv

Each line of the files contains a token, a tab and a tag; a blank line ends a sentence, and further
columns are ignored. From CoNLL-U (.conllu), the columns FORM and UPOS are read. Tags in IOB2
(B-place, I-place, O) are scored by the F1 of whole entities, others by accuracy.

A tagger learns vectors of words, prefixes and suffixes, and reads them with a bidirectional LSTM.
The taggers with and without ELMo differ only in its vectors: they are computed before training and
kept in memory; a learned mix of their layers is concatenated to the learned vectors, and with
--elmo_output also to the LSTM's output.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import running
from absl import logging

import bilm
from bilm.data.readers import Corpus, form_of
from bilm.data.text import read_lines

if TYPE_CHECKING:  # imported inside functions, so that --help does not load TensorFlow
    import keras
    import tensorflow as tf

PADDING_TAG = ""
UNKNOWN = 1  # number of each word or affix that the training sentences lack; 0 is padding
UNKNOWN_RATE = 0.2  # share of words and affixes that are replaced in training, to train UNKNOWN
N_PARTS = 10  # a word, its prefixes of 1 to 4 characters, its suffixes of 1 to 5
DIM = 40  # of the vector of a word or affix


class Sentence(NamedTuple):
    """A tagged sentence; `vectors`, float32 (layers + 1, T, D), are those of ELMo."""

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
    flags.add_argument("--epochs", type=int, default=8, help="passes over the training sentences")
    flags.add_argument("--units", type=int, default=100, help="LSTM units per direction")
    flags.add_argument("--max_sentences", type=int, help="maximum number of sentences to read")
    return flags


def read_sentences(path: str, limit: int | None) -> list[Sentence]:
    if form_of(path).name == "CoNLL-U":
        found = (Sentence(record.words, record.tags) for record in Corpus(path))
        return [checked(sentence, path) for sentence in islice(found, limit)]
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


def checked(sentence: Sentence, path: str) -> Sentence:
    if None in sentence.tags:
        word = sentence.words[sentence.tags.index(None)]
        raise bilm.BilmError(f"{path}: {word!r} has no UPOS tag")
    return sentence


@cache
def parts(word: str) -> list[str]:
    """Return a word, its prefixes and its suffixes."""
    prefixes = [f"{word[:n]}-" for n in range(1, 5)]
    return [word, *prefixes, *(f"-{word[-n:]}" for n in range(1, 6))]


def numbered(train: list[Sentence]) -> dict[str, int]:
    """Return the numbers of the words and affixes of the training sentences."""
    found = {part for sentence in train for word in sentence.words for part in parts(word)}
    return {part: i for i, part in enumerate(sorted(found), UNKNOWN + 1)}


def batches(
    sentences: list[Sentence],
    numbers: dict[str, int],
    tag_ids: dict[str, int],
    size: int,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Return batches: numbers of parts and vectors; tag ids; weights, 0 for padding. With a seed,
    for training: each pass draws batches of sentences of similar length, and unknown parts."""
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    lengths = np.array([len(sentence.words) for sentence in sentences])
    n_batches = -(-len(sentences) // size)
    vectors = sentences[0].vectors

    def generate() -> Iterator[tuple]:
        order = np.arange(len(sentences))
        if seed is not None:
            order = np.argsort(lengths + rng.uniform(-2, 2, len(sentences)))
        for k in range(n_batches) if seed is None else rng.permutation(n_batches):
            group = order[k * size : (k + 1) * size]
            shape = len(group), lengths[group].max()
            inputs = {"parts": np.zeros((*shape, N_PARTS), np.int32)}
            if vectors is not None:
                of_words = shape[0], len(vectors), shape[1], vectors.shape[2]
                inputs["layers"] = np.zeros(of_words, np.float32)
            tags, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
            for row, sentence in enumerate(sentences[i] for i in group):
                n = len(sentence.words)
                ids = [[numbers.get(part, UNKNOWN) for part in parts(w)] for w in sentence.words]
                if seed is not None:
                    ids = np.where(rng.random((n, N_PARTS)) < UNKNOWN_RATE, UNKNOWN, ids)
                inputs["parts"][row, :n] = ids
                if sentence.vectors is not None:
                    inputs["layers"][row, :, :n] = sentence.vectors
                tags[row, :n] = [tag_ids.get(tag, 0) for tag in sentence.tags]
                weights[row, :n] = 1.0
            yield inputs, tags, weights

    signature = {"parts": tf.TensorSpec((None, None, N_PARTS), tf.int32)}
    if vectors is not None:
        of_words = None, len(vectors), None, vectors.shape[2]
        signature["layers"] = tf.TensorSpec(of_words, tf.float32)
    matrix = [tf.TensorSpec((None, None), dtype) for dtype in (tf.int32, tf.float32)]
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(signature, *matrix))
    return dataset.apply(tf.data.experimental.assert_cardinality(n_batches)).prefetch(2)


def build(train: list[Sentence], n_numbers: int, n_tags: int, args: Namespace) -> keras.Model:
    import keras

    from bilm.layers.scalar_mix import ScalarMix

    numbers = keras.Input((None, N_PARTS), dtype="int32", name="parts")
    inputs = {"parts": numbers}
    x = keras.layers.Reshape((-1, N_PARTS * DIM))(keras.layers.Embedding(n_numbers, DIM)(numbers))
    elmo = []
    if train[0].vectors is not None:
        n_layers, _, dim = train[0].vectors.shape
        layers = inputs["layers"] = keras.Input((n_layers, None, dim), name="layers")
        for _ in range(2 if args.elmo_output else 1):
            mix = ScalarMix(l2_coef=1e-3)(layers)
            elmo.append(keras.layers.Dropout(0.3)(mix))
        x = keras.layers.Concatenate()([x, elmo[0]])
    x = keras.layers.Dropout(0.3)(x)
    lstm = keras.layers.LSTM(args.units, return_sequences=True)
    x = keras.layers.Bidirectional(lstm)(x, mask=numbers[..., 0] != 0)
    if args.elmo_output and elmo:
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


def evaluate(
    model: keras.Model, dev: list[Sentence], numbers: dict[str, int], names: list[str]
) -> tuple[str, float]:
    """Return the F1 of entities for IOB2 tags, else the accuracy of tokens, in percent."""
    predicted = [
        row
        for inputs, _, _ in batches(dev, numbers, {}, 64)
        for row in np.argmax(model.predict_on_batch(inputs), axis=-1)
    ]
    pairs = [
        (sentence.tags, [names[k] for k in row[: len(sentence.tags)]])
        for sentence, row in zip(dev, predicted, strict=True)
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
    numbers = numbered(train)
    data = batches(train, numbers, {name: i for i, name in enumerate(names)}, 16, seed)
    model = build(train, UNKNOWN + 1 + len(numbers), len(names), args)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, args.epochs * int(data.cardinality()))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate, clipnorm=5.0), loss)
    for epoch in range(args.epochs):
        history = model.fit(data, verbose=0, shuffle=False)
        metric, score = evaluate(model, dev, numbers, names)
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
