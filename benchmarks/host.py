#!/usr/bin/env python
"""Processor time around the biLM, one thread: of embedding with a backend that computes nothing,
and of reading a text for training, up to the batches of the steps.

Example: compare two versions, of which the other is in PATH/TO/OTHER
  for k in 1 2 3; do
    PYTHONPATH=PATH/TO/OTHER python benchmarks/host.py; PYTHONPATH=. python benchmarks/host.py
  done

The cache of words is empty at the start. The figures of the command are those of the last two
thirds of a text, without what each call takes, such as opening the model.
"""

import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import common
import numpy as np
from absl import app, flags, logging

from bilm.data import signs
from bilm.embedding import embedder
from bilm.embedding.corpus import dump_bilm_embeddings as dump
from bilm.inference.backend import Backend, Stacks
from bilm.options import load_run_options
from bilm.storage.stored_model import open_model

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "Size of the model.")
flags.DEFINE_integer("n_sentences", 3000, "Lines of the text.", 3)
flags.DEFINE_integer("n_times", 3, "Repetitions; the least time is reported.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

OUTPUTS = ("pooled", "npz", "mean"), ("npz", "npz", "none"), ("hdf5", "hdf5", "none")
N_STEPS = 50  # of training in a repetition


class NoStacks(Stacks):
    """Stacks that compute nothing."""

    def run_window(self, table, window, state):
        """Return as many numbers as the stacks would."""
        n_layers = len(state) // 2 // len(window.places)
        shape = n_layers + 1, *window.fresh.shape, table.shape[1]
        return dict.fromkeys(window.places, numbers(shape)), state


@cache
def numbers(shape) -> np.ndarray:
    """Return an array, the same for each window of a shape."""
    return np.random.default_rng(0).random(shape, np.float32)


def no_backend(stored, *_):
    """Return a backend of a model that computes nothing."""
    width = stored.options.lstm.projection_dim
    vectors: np.ndarray = np.zeros((1 << 16, width), np.float32)
    return Backend(stored.options, None, lambda ids: vectors[: len(ids)], NoStacks(stored.options))


def processor_seconds(function: Callable, *arguments, **how) -> float:
    """Return the least processor time of several calls."""
    seconds = []
    for _ in range(FLAGS.n_times):
        start = time.process_time()
        function(*arguments, **how)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main(_):
    logging.set_verbosity(logging.WARNING)
    embedder.open_backend = no_backend
    signs.SAMPLE_WORDS = 1000  # of a long text, few words are examined
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = open_model(*common.random_model(FLAGS.model, folder))
        sentences = common.sentences(common.corpus(folder).heldout)[: FLAGS.n_sentences]
        n_tokens = [sum(map(len, sentences[:n])) for n in (len(sentences) // 3, len(sentences))]

        model = embedder.ElmoEmbedder(stored)

        def embed_batch():
            model.clear_cache()
            model.embed_batch(sentences)

        embed_batch()  # also examines the text
        figures = {"embed_batch": 1e6 * processor_seconds(embed_batch) / n_tokens[-1]}
        for what, form, pool in OUTPUTS:
            seconds = []
            for n in (len(sentences) // 3, len(sentences)):
                text, output = folder / f"{n}.txt", folder / f"vectors.{form}"
                text.write_text("".join(" ".join(words) + "\n" for words in sentences[:n]))
                inputs = None, text, stored, None, output
                seconds.append(processor_seconds(dump, *inputs, pool=pool))
            figures[f"command, {what}"] = 1e6 * np.diff(seconds)[0] / np.diff(n_tokens)[0]
        options = load_run_options(FLAGS.model)
        batches = common.training_run(options, folder, n_tokens=20_000).batches
        next(batches)  # fills the buffer of sentences
        of_step = processor_seconds(lambda: list(islice(batches, N_STEPS))) / N_STEPS
        figures["training"] = 1e6 * of_step / (options.batch_size * options.unroll_steps)
    title = f"microseconds per token, {FLAGS.model}, {n_tokens[-1]:,} tokens"
    common.report(title, figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
