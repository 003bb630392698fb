#!/usr/bin/env python
"""Effect of bfloat16 matrix products on the training loss and on the vectors of a model.

Examples:
  python benchmarks/precision.py
  python benchmarks/precision.py --model original --n_steps 20 --json original.json

The model is trained twice from the same weights on the same text with the same random numbers, and
the mean sampled losses of the last 50 steps are compared. The weights of the float32 run then embed
sentences in both precisions. The error of a layer of a sentence is the distance divided by the norm
of the float32 layer.
"""

import statistics
import tempfile
from pathlib import Path

import common
import keras
import numpy as np
from absl import app, flags, logging

from bilm.embedding.embedder import ElmoEmbedder
from bilm.layers.functional import PRECISIONS
from bilm.options.run_options import load_run_options

LAST = 50  # number of averaged losses
SENTENCES = 100

FLAGS = flags.FLAGS
flags.DEFINE_enum("model", "small", ["small", "original"], "Size of the model.")
flags.DEFINE_integer("batch_size", 32, "Rows per step.", 1)
flags.DEFINE_integer("negatives", 1024, "Negatives per direction.", 1)
flags.DEFINE_integer("n_tokens", 20_000, "Vocabulary size.", 10)
flags.DEFINE_integer("n_steps", 300, "Steps of training.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")


def trained(options, folder, precision):
    """Train from seed 0; return the model and the mean sampled loss of the last steps."""
    keras.utils.set_random_seed(0)
    run = common.training_run(options, folder, FLAGS.n_tokens, precision)
    losses = []
    for step in range(FLAGS.n_steps):
        losses.append(run.trainer.step(run.iterator, step).losses.numpy().mean())
    return run.trainer.model, statistics.mean(map(float, losses[-LAST:]))


def vectors(model, folder, sentences) -> dict[str, list[np.ndarray]]:
    """Embed sentences with a model's weights in both precisions."""
    files = common.write_model(model, folder)
    return {p: ElmoEmbedder(*files, precision=p).embed_batch(sentences) for p in PRECISIONS}


def distances(exact, rounded) -> tuple[float, float]:
    """Return the largest relative error of a layer and the smallest cosine of a token."""
    errors, cosines = [], []
    for a, b in zip(exact, rounded, strict=True):
        norms = np.linalg.norm(a, axis=(1, 2))
        errors += list(np.linalg.norm(a - b, axis=(1, 2)) / norms)
        products = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        cosines.append(((a * b).sum(axis=-1) / products).min())
    return float(max(errors)), float(min(cosines))


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    options = load_run_options(FLAGS.model).replace(
        batch_size=FLAGS.batch_size, n_negative_samples_batch=FLAGS.negatives
    )
    with tempfile.TemporaryDirectory() as name:
        folder, losses = Path(name), {}
        for precision in ("bfloat16", "float32"):  # the float32 model embeds
            model, losses[precision] = trained(options, folder, precision)
            print(f"{precision}: loss {losses[precision]:.4f} after {FLAGS.n_steps} steps")
        sentences = common.sentences(common.corpus(folder).heldout)[:SENTENCES]
        error, cosine = distances(*vectors(model, folder, sentences).values())
    figures = {f"loss_{precision}": loss for precision, loss in losses.items()}
    figures["loss_change"] = losses["bfloat16"] / losses["float32"] - 1
    figures |= {"largest_relative_error": error, "least_cosine": cosine}
    common.report(f"{FLAGS.model}, {FLAGS.n_steps} steps", figures, FLAGS.json)


if __name__ == "__main__":
    app.run(main)
