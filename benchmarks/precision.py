#!/usr/bin/env python
"""Effect of bfloat16 matrix products on the training loss and on the vectors of a model.

Examples:
  python benchmarks/precision.py --model original --n_steps 20 --json original.json
  python benchmarks/precision.py --trained novels-en --precision int8

The model is trained twice from the same weights on the same text with the same random numbers, and
the mean sampled losses of the last 50 steps are compared. The weights of the float32 run then embed
sentences in both precisions. The error of a layer of a sentence is the distance divided by the norm
of the float32 layer. --trained compares only vectors.
"""

import common
import keras
import numpy as np
from absl import flags

from bilm.embedding.embedder import ElmoEmbedder
from bilm.options.run_options import load_run_options
from bilm.precisions import INFERENCE_PRECISIONS

LAST = 50  # number of averaged losses
SENTENCES = 100

FLAGS = flags.FLAGS
flags.DEFINE_string("trained", None, "Model that is not trained here: a name or a folder.")
flags.DEFINE_enum("precision", "bfloat16", INFERENCE_PRECISIONS[1:], "Precision of the vectors.")
flags.DEFINE_integer("n_tokens", 20_000, "Vocabulary size.", 10)
flags.DEFINE_integer("n_steps", 300, "Steps of training.", 1)


def trained(options, folder, precision):
    """Train from seed 0; return the model and the mean sampled loss of the last steps."""
    keras.utils.set_random_seed(0)
    run = common.training_run(options, folder, FLAGS.n_tokens, precision)
    _, losses = run.steps(n_steps=FLAGS.n_steps)
    return run.trainer.model, float(np.mean(losses[-LAST:]))


def distances(exact, rounded) -> dict[str, float]:
    """Return the largest relative error of a layer, and the mean and least cosine of a token."""
    errors, cosines = [], []
    for a, b in zip(exact, rounded, strict=True):
        norms = np.linalg.norm(a, axis=(1, 2))
        errors += list(np.linalg.norm(a - b, axis=(1, 2)) / norms)
        products = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        cosines += list(((a * b).sum(axis=-1) / products).ravel())
    figures = {"largest_relative_error": max(errors)}
    figures |= {"mean_cosine": np.mean(cosines), "least_cosine": min(cosines)}
    return {name: float(value) for name, value in figures.items()}


def measure(folder):
    files, figures = [FLAGS.trained], {}
    if not FLAGS.trained:
        options = load_run_options(FLAGS.model).replace(
            batch_size=32, n_negative_samples_batch=1024
        )
        for precision in ("bfloat16", "float32"):  # the float32 model embeds
            model, figures[f"loss_{precision}"] = trained(options, folder, precision)
        figures["loss_change"] = figures["loss_bfloat16"] / figures["loss_float32"] - 1
        files = common.write_model(model, folder)
    sentences = common.sentences(common.corpus(folder).heldout)[:SENTENCES]
    precisions = "float32", FLAGS.precision
    figures |= distances(
        *(ElmoEmbedder(*files, precision=p).embed_batch(sentences) for p in precisions)
    )
    return FLAGS.trained or f"{FLAGS.model}, {FLAGS.n_steps} steps", figures


if __name__ == "__main__":
    common.run(measure)
