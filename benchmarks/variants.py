#!/usr/bin/env python
"""Held-out perplexity with changes to training that bilm does not offer.

Examples:
  python benchmarks/variants.py none average short_slots
  python benchmarks/variants.py --power 0.75 counted_negatives

The changes, each alone:
  none               nothing
  average            the mean of the weights after each of the last --average steps
  constant_average   the same with a learning rate that does not decay
  short_slots        both of Adam's averages rounded to bfloat16 after each step
  counted_negatives  negatives drawn by the words' counts in the text to the power --power
  counted_biases     first biases of the softmax from those counts, where the recipe takes ranks

Model, text and recipe are those of docs/experiments.md, with 1,024 negatives. The text is
classics_en of the shared data, or Python's documentation where that is missing.
"""

import tempfile
from pathlib import Path
from unittest import mock

import common
import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from bilm.data.shards import count_tokens, resolve_shards
from bilm.data.vocabulary import BOS, EOS, Vocabulary
from bilm.evaluation import Perplexity
from bilm.options import RunOptions
from bilm.storage.names import stored_variables
from bilm.training import input as training_input
from bilm.training import optimizer as optimizers
from bilm.training.run import TrainingRun
from bilm.training.sampling import LogUniformSampler

RECIPE = {
    "state_reset_probability": 0.01, "optimizer": "adam", "learning_rate": 0.006,
    "warmup_steps": 150, "decay": "linear", "decay_start": 0.2, "dropout": 0,
    "softmax_bias": "log_uniform",
}  # fmt: skip

FLAGS = flags.FLAGS
flags.DEFINE_integer("n_steps", 1500, "Steps of each run.", 1)
flags.DEFINE_integer("average", 300, "Steps whose weights are averaged.", 1)
flags.DEFINE_float("power", 0.75, "Of the counts that negatives are drawn by.", 0)
flags.DEFINE_integer("seed", 0, "Of each run.")


class Averaged(TrainingRun):
    """A run that ends with the mean of its weights over its last steps."""

    n_averaged = 0

    def _take_step(self, text, source):
        super()._take_step(text, source)
        if self.step > self.plan.n_steps - FLAGS.average:
            self.n_averaged += 1
            weights = [v.numpy() for v in stored_variables(self.trainer.model).values()]
            if self.n_averaged == 1:
                self.means = weights
            for mean, now in zip(self.means, weights, strict=True):
                mean += (now - mean) / self.n_averaged

    def _evaluate(self):
        last = super()._evaluate()
        print(f"{'last weights':>18}: {last}", flush=True)
        for variable, mean in zip(
            stored_variables(self.trainer.model).values(), self.means, strict=True
        ):
            variable.assign(mean)
        return super()._evaluate()


class ShortSlots(optimizers.Adam):
    """Adam whose averages lose after each step what bfloat16 does not hold."""

    def update(self, variable, gradient, step_size, *slots):
        """See `bilm.training.optimizer.Optimizer.update`."""
        done = super().update(variable, gradient, step_size, *slots)
        with tf.control_dependencies([done]):
            return tf.group(*(slot.assign(_short(slot)) for slot in slots))

    def update_rows(self, variable, rows, gradient, step_size, *slots):
        """See `bilm.training.optimizer.Optimizer.update_rows`."""
        done = super().update_rows(variable, rows, gradient, step_size, *slots)
        with tf.control_dependencies([done]):
            kept = [tf.IndexedSlices(_short(tf.gather(slot, rows)), rows) for slot in slots]
            return tf.group(*(s.scatter_update(k) for s, k in zip(slots, kept, strict=True)))


def _short(values):
    return tf.cast(tf.cast(values, tf.bfloat16), tf.float32)


class CountSampler(LogUniformSampler):
    """Draws words by a power of their counts; `counts` are set before a run."""

    counts: np.ndarray

    def __init__(self, *args):
        super().__init__(*args)
        weights = self.counts.astype(float) ** FLAGS.power
        self.probabilities = weights / weights.sum()
        self.cumulative = np.cumsum(self.probabilities)

    def words(self, uniform):
        """See `LogUniformSampler.words`."""
        ids = np.searchsorted(self.cumulative, uniform, side="right")
        return np.minimum(ids, self.n_tokens - 1)

    def probability(self, ids):
        """See `LogUniformSampler.probability`."""
        return self.probabilities[ids]


def word_counts(text: common.Text) -> np.ndarray:
    """Return how often each id of the vocabulary is a target of one direction, at least 1."""
    vocab = Vocabulary(text.vocab_file, validate_file=True)
    counts = np.zeros(vocab.size, np.int64)

    def add(words):
        np.add.at(counts, [vocab.word_to_id(word) for word in words], 1)

    found = count_tokens(resolve_shards(text.train), on_words=add)
    counts[[vocab.word_to_id(BOS), vocab.word_to_id(EOS)]] = found.n_sentences
    return np.maximum(counts, 1)


def measure(name: str, text: common.Text, save_dir: Path) -> Perplexity:
    """Train with one change; return the held-out perplexity at the end."""
    changes = {"decay": "none"} if name == "constant_average" else {}
    options = RunOptions.from_dict(common.MIDDLE | RECIPE | changes)
    run_class = Averaged if name.endswith("average") else TrainingRun
    initialize = None
    if name.startswith("counted"):
        CountSampler.counts = counts = word_counts(text)
    if name == "counted_biases":

        def initialize(model):
            model.softmax.bias.assign(np.log(counts / counts.sum()))

    sampler = CountSampler if name == "counted_negatives" else LogUniformSampler
    adam = ShortSlots if name == "short_slots" else optimizers.Adam
    with (
        mock.patch.object(training_input, "LogUniformSampler", sampler),
        mock.patch.dict(optimizers.OPTIMIZERS, adam=adam),
    ):
        run = run_class(
            options, text.vocab_file, text.train, save_dir, text.heldout,
            n_steps=FLAGS.n_steps, eval_steps=FLAGS.n_steps, seed=FLAGS.seed,
            initialize=initialize,
        )  # fmt: skip
        return run.train().heldout


CHANGES = (
    "none", "average", "constant_average", "short_slots", "counted_negatives", "counted_biases",
)  # fmt: skip


def main(argv):
    logging.set_verbosity(logging.WARNING)
    names = argv[1:] or CHANGES
    if unknown := set(names) - set(CHANGES):
        raise app.UsageError(f"{', '.join(unknown)}: expected some of {', '.join(CHANGES)}")
    with tempfile.TemporaryDirectory() as folder:
        text = common.corpus(Path(folder))
        for name in names:
            print(f"{name:>18}: {measure(name, text, Path(folder) / name)}", flush=True)


if __name__ == "__main__":
    app.run(main)
