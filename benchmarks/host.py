#!/usr/bin/env python
"""Processor time of embedding and training without the biLM: with a backend that computes nothing,
one thread, and of making the batches of training steps.

Example: compare two versions, of which the other is in PATH/TO/OTHER
  for k in 1 2 3; do
    PYTHONPATH=PATH/TO/OTHER python benchmarks/host.py; PYTHONPATH=. python benchmarks/host.py
  done

The cache of words is empty at the start. The figures of the command are those of the last two
thirds of a text, without what each call takes, such as opening the model.
"""

import time
from collections.abc import Callable
from itertools import islice

import common
import h5py
import numpy as np
from absl import flags

from bilm.data import profile
from bilm.embedding import corpus, embedder
from bilm.inference.backend import Backend, Stacks
from bilm.options import load_run_options
from bilm.storage.stored_model import open_model

FLAGS = flags.FLAGS
flags.DEFINE_integer("n_sentences", 3000, "Lines of the text.", 3)
flags.DEFINE_integer("n_times", 3, "Repetitions; the least time is reported.", 1)

OUTPUTS = {"pooled": "npz", "npz": "npz", "hdf5": "hdf5"}
N_STEPS = 50  # of training in a repetition


class NoStacks(Stacks):
    """Stacks that return the same numbers for all windows of a shape."""

    def __init__(self, options):
        super().__init__(options)
        self._lstm = options.lstm
        self._outputs: dict[tuple[int, ...], np.ndarray] = {}

    def run_window(self, table, window, state):
        """Return as many numbers as the stacks would."""
        shape = self._lstm.n_layers + 1, *window.fresh.shape, self._lstm.projection_dim
        if shape not in self._outputs:
            self._outputs[shape] = np.random.default_rng(0).random(shape, np.float32)
        return dict.fromkeys(window.places, self._outputs[shape]), state


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


def measure(folder):
    embedder.open_backend = no_backend
    profile.SAMPLE_WORDS = 1000  # of a long text, few words are examined
    options = load_run_options(FLAGS.model).model.replace(bidirectional=True)
    common.write_json(str(folder / "options.json"), options.for_export())
    h5py.File(folder / "weights.hdf5", "w").close()
    stored = open_model(folder / "options.json", folder / "weights.hdf5")
    sentences = common.sentences(common.corpus(folder).heldout)[: FLAGS.n_sentences]
    n_tokens = [sum(map(len, sentences[:n])) for n in (len(sentences) // 3, len(sentences))]

    model = embedder.ElmoEmbedder(stored)

    def embed_batch():
        model.clear_cache()
        model.embed_batch(sentences)

    embed_batch()  # also examines the text
    figures = {"embed_batch": 1e6 * processor_seconds(embed_batch) / n_tokens[-1]}
    for what, form in OUTPUTS.items():
        how = {"pool": "mean" if what == "pooled" else "none"}
        seconds = []
        for n in (len(sentences) // 3, len(sentences)):
            text, output = folder / f"{n}.txt", folder / f"vectors.{form}"
            text.write_text("".join(" ".join(words) + "\n" for words in sentences[:n]))
            dump = corpus.dump_bilm_embeddings
            seconds.append(processor_seconds(dump, None, text, stored, None, output, **how))
        figures[f"command, {what}"] = 1e6 * np.diff(seconds)[0] / np.diff(n_tokens)[0]

    run_options = load_run_options(FLAGS.model)
    batches = common.training_run(run_options, folder, n_tokens=20_000).batches
    next(batches)  # fills the buffer of sentences
    of_step = processor_seconds(lambda: list(islice(batches, N_STEPS))) / N_STEPS
    figures["training"] = 1e6 * of_step / (run_options.batch_size * run_options.unroll_steps)
    title = f"microseconds per token, {FLAGS.model}, {n_tokens[-1]:,} tokens"
    return title, figures


if __name__ == "__main__":
    common.run(measure)
